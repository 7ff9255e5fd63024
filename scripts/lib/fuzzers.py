"""Builds the libFuzzer programs with clang, runs them side by side, and reports what each has found."""

import concurrent.futures
import os
import re
import subprocess
import tempfile
import time

from builds import ROOT, built_suite, configure, folder_of
from suites import Suite

CORPUS = os.path.join(ROOT, "tests", "fuzz", "corpus")


class Run:
    """The result of one fuzzer."""

    def __init__(self, program, seconds, result):
        said = result.stderr
        units = re.search(r"^stat::number_of_executed_units: *(\d+)$", said, re.MULTILINE)
        covered = re.findall(r"^#\d+\s.*\bcov: (\d+) ft: (\d+)", said, re.MULTILINE)
        kept = re.search(r"Test unit written to (\S+)", said)
        self.name = os.path.basename(program)
        self.found = result.returncode != 0
        edges, features = covered[-1] if covered else ("0", "0")
        self.line = (f"{self.name:<24} {int(units[1]) if units else 0:>12,} executions in {seconds:.0f} s, "
                     f"coverage {edges} ({features} features)")
        again = f"{program} {kept[1]}" if kept else program
        self.problem = f"{self.name}; again by: {again}\n{said[-8000:]}"


def run_fuzzer(program, seconds, artefacts, corpus=CORPUS):
    """Runs a fuzzer from its seeds in tests/fuzz/corpus, if any; new inputs go to a temporary folder."""
    name = os.path.basename(program).removesuffix("_fuzzer")
    seeds = os.path.join(corpus, name)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"ddprun-{name}-corpus-") as learned:
        result = subprocess.run(
            [program, learned, *([seeds] if os.path.isdir(seeds) else []), f"-max_total_time={seconds}", "-max_len=4096",
             "-timeout=30", "-rss_limit_mb=4096", "-print_final_stats=1", f"-artifact_prefix={artefacts}/{name}-"],
            capture_output=True, text=True, errors="replace", check=False)
    return Run(program, time.monotonic() - started, result)


def run_fuzzers(jobs, seconds):
    """Builds every libFuzzer program (…_fuzzer) and runs each for some seconds, `jobs` of them side by side."""
    suite = Suite("fuzzers")
    folder = folder_of("fuzz")
    configure("fuzz")
    listed = subprocess.run(["cmake", "--build", folder, "--target", "help"], capture_output=True, text=True, check=False)
    fuzzers = sorted(set(re.findall(r"^(\w+_fuzzer):", listed.stdout, re.MULTILINE)))
    if not fuzzers:
        suite.skip("no fuzzer in this build")
        return suite
    built = built_suite("fuzz", jobs, fuzzers)
    suite.failed, suite.problems = built.failed, built.problems
    started = time.monotonic()
    if not suite.failed:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            programs = [os.path.join(folder, "bin", name) for name in fuzzers]
            for run in pool.map(lambda program: run_fuzzer(program, seconds, folder), programs):
                count(suite, run)
    suite.seconds = built.seconds + time.monotonic() - started
    return suite


def count(suite, run):
    print(f"      {run.line}{', A FINDING' if run.found else ''}", flush=True)
    suite.notes.append(run.line)
    if run.found:
        suite.failed += 1
        suite.problems.append(run.problem)
    else:
        suite.passed += 1
