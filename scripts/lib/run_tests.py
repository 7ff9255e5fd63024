#!/usr/bin/env python3
"""Runs the test suites and closes with one summary; called by scripts/test, which installs and builds.

Every suite is a ctest label of one build (docs/TESTING.md). Cases are counted one by one (GoogleTest,
unittest), skipped ones with their reason.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# Labels of the dev build in the order in which they run; those of QUICK take seconds.
DEV = ["unit", "datadriven", "sim", "fuzz", "process", "server", "worker", "e2e", "contract", "cluster", "campaign", "slurm",
       "python", "packaging", "docs", "lint", "static", "bench"]
# What an ordinary run leaves to --all: what depends on others' programs, takes long, or only measures.
EXTRA = ["static", "bench", "fuzzers"]
QUICK = ["unit", "datadriven", "sim", "fuzz", "process", "server", "lint"]
# Those that mean something under the sanitizers.
SANITIZED = ["unit", "datadriven", "sim", "fuzz", "process", "server", "e2e", "cluster"]
TSAN = ["unit", "datadriven", "sim"]
# Timing and namespaces: one at a time.
SERIAL = ["worker", "e2e", "contract", "cluster", "campaign", "slurm", "python", "packaging", "docs", "bench", "static"]


class Suite:
    def __init__(self, name):
        self.name = name
        self.passed = self.failed = 0
        self.skipped = {}  # reason: count
        self.problems = []
        self.notes = []  # lines "summary: …" of its tests
        self.seconds = 0.0

    def skip(self, reason, count=1):
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def total_skipped(self):
        return sum(self.skipped.values())


def labels_of(build):
    """{test name: label}."""
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, capture_output=True, text=True)
    labels = {}
    for test in json.loads(listed.stdout)["tests"]:
        for item in test.get("properties", []):
            if item["name"] == "LABELS":
                labels[test["name"]] = item["value"][0]
    return labels


def run_ctest(suite, build, label, jobs, names=None):
    """Runs the label's tests (of `names` only, when given) and counts their cases into the suite."""
    logs = os.path.join(build, "test-logs")
    os.makedirs(logs, exist_ok=True)
    report = os.path.join(logs, f"{suite.name}.xml")
    command = ["ctest", "--label-regex", f"^{label}$", "--output-junit", report, "--parallel",
               "1" if label in SERIAL else str(jobs), "--test-output-size-passed", "4000000",
               "--test-output-size-failed", "4000000", "--no-tests=error"]
    if names is not None:
        command += ["--tests-regex", "^(" + "|".join(map(re.escape, names)) + ")$"]
    started = time.monotonic()
    result = subprocess.run(command, cwd=build, check=False, capture_output=True, text=True)
    suite.seconds += time.monotonic() - started
    if not os.path.exists(report):
        suite.failed += 1
        suite.problems.append(f"ctest gave no report:\n{result.stdout}{result.stderr}")
        return
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        count_test(suite, case.get("name"), case.get("status"), case.findtext("system-out") or "",
                   case.find("skipped"))


def count_test(suite, name, status, output, skipped):
    """Counts one ctest test by the cases in its output; `status`: ctest's run, fail, notrun, disabled."""
    passed, failed, reasons = count_cases(output)
    suite.notes += re.findall(r"^summary: (.*)$", output, re.MULTILINE)
    if status == "run" and passed + failed + len(reasons) == 0:
        passed = 1
    if status == "notrun" and skipped is not None and "SKIP" in (skipped.get("message") or ""):
        suite.skip(f"{name}: {(output.strip().splitlines() or ['no reason given'])[-1]}")
        return
    if status != "run" and failed == 0:
        failed = 1  # it crashed, timed out, or could not be started
    suite.passed += passed
    suite.failed += failed
    for reason in reasons:
        suite.skip(reason)
    if failed:
        text = output if len(output) < 12000 else output[:4000] + "\n   […]\n" + output[-8000:]
        suite.problems.append(f"{name} ({status})\n{text}")


_UNITTEST_END = re.compile(r"^Ran (\d+) tests? in .*\n\n(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)


def count_cases(output):
    """(passed, failed, [skip reasons]) by what GoogleTest and unittest print; zeros when it is neither."""
    passed = len(re.findall(r"^\[       OK \] ", output, re.MULTILINE))
    failed = len(re.findall(r"^\[  FAILED  \] .*\(\d+ ms\)$", output, re.MULTILINE))
    reasons = [
        (re.search(r"Skipped\n(.*)", body) or re.search(r"()", "")).group(1).strip() or "no reason given"
        for body in re.findall(r"^\[ RUN      \][^\n]*\n((?:(?!\[ RUN)[^\n]*\n)*?)\[  SKIPPED \] .*ms\)$", output,
                               re.MULTILINE)
    ]
    for count, _, details in _UNITTEST_END.findall(output):
        numbers = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", details)}
        bad = numbers.get("failures", 0) + numbers.get("errors", 0) + numbers.get("successes", 0)
        left_out = numbers.get("skipped", 0)
        passed += max(0, int(count) - bad - left_out)
        failed += bad
        quoted = [a or b for a, b in re.findall(r"skipped (?:'([^\n]*)'|\"([^\n]*)\")$", output, re.MULTILINE)]
        reasons += (quoted + ["no reason given"] * left_out)[:left_out]
    return passed, failed, reasons


def links_grpc(program):
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=False).stdout
    return "libgrpc" in needed


# For a build folder that is made here, for nobody who debugs or edits: files are joined and have line tables only, which
# takes half the time. One that was configured by hand stays as it is. The suite static wants to know each file's command.
FRESH = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_CXX_FLAGS_DEBUG=-g1"]


def build(preset, jobs, targets=(), options=()):
    """'' or what went wrong."""
    log = os.path.join(ROOT, "build", f"{preset}-build.log")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "w", encoding="utf-8") as sink:
        for command in (["cmake", "--preset", preset, *options],
                        ["cmake", "--build", f"build/{preset}", "--parallel", str(jobs),
                         *(["--target", *targets] if targets else [])]):
            if subprocess.run(command, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT, check=False).returncode != 0:
                with open(log, encoding="utf-8", errors="replace") as text:
                    return f"{' '.join(command)} failed; the end of {log}:\n" + "".join(text.readlines()[-40:])
    return ""


def built_suite(name, preset, jobs, targets=(), options=()):
    suite = Suite(name)
    started = time.monotonic()
    problem = build(preset, jobs, targets, options)
    suite.seconds = time.monotonic() - started
    if problem:
        suite.failed = 1
        suite.problems.append(problem)
    return suite


def run_label(preset, label, jobs, name=None):
    suite = Suite(name or label)
    folder = os.path.join(ROOT, "build", preset)
    if label not in labels_of(folder).values():
        suite.skip(f"no test of label '{label}' in this build")
        return suite
    run_ctest(suite, folder, label, jobs)
    return suite


def run_asan(jobs, whole):
    """Whole programs (e2e, cluster) only with `whole`."""
    suite = built_suite("asan-ubsan", "asan-ubsan", jobs)
    folder = os.path.join(ROOT, "build", "asan-ubsan")
    if not suite.failed:
        present = set(labels_of(folder).values())
        for label in [label for label in SANITIZED if label in present and (whole or label not in SERIAL)]:
            run_ctest(suite, folder, label, jobs)
    return suite


def run_tsan(jobs):
    """The tests without gRPC: Debian's is not instrumented, and what it synchronises looks like races."""
    dev = os.path.join(ROOT, "build", "dev")
    subprocess.run(["cmake", "--preset", "tsan"], cwd=ROOT, capture_output=True, check=False)  # the build says what failed
    present = labels_of(os.path.join(ROOT, "build", "tsan"))
    names = [name for name, label in present.items() if label in TSAN]
    free = [name for name in names if os.path.exists(f"{dev}/tests/{name}") and not links_grpc(f"{dev}/tests/{name}")]
    suite = built_suite("tsan", "tsan", jobs, free)
    if not suite.failed:
        for label in TSAN:
            chosen = [name for name in free if present[name] == label]
            if chosen:
                run_ctest(suite, os.path.join(ROOT, "build", "tsan"), label, jobs, chosen)
    return suite


def run_fuzzers(jobs, seconds):
    """Builds every libFuzzer program (…_fuzzer) with clang and runs each for some seconds."""
    suite = Suite("fuzzers")
    folder = os.path.join(ROOT, "build", "fuzz")
    subprocess.run(["cmake", "--preset", "fuzz"], cwd=ROOT, capture_output=True, check=False)
    listed = subprocess.run(["cmake", "--build", folder, "--target", "help"], capture_output=True, text=True, check=False)
    fuzzers = sorted(set(re.findall(r"^(\w+_fuzzer):", listed.stdout, re.MULTILINE)))
    if not fuzzers:
        suite.skip("no fuzzer in this build")
        return suite
    suite = built_suite("fuzzers", "fuzz", jobs, fuzzers)
    started = time.monotonic()
    for name in fuzzers if not suite.failed else ():
        result = subprocess.run(
            [os.path.join(folder, "bin", name), f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=4096",
             f"-artifact_prefix={folder}/{name}-"], capture_output=True, text=True, errors="replace", check=False)
        if result.returncode == 0:
            suite.passed += 1
        else:
            suite.failed += 1
            suite.problems.append(f"{name}\n{result.stderr[-8000:]}")
    suite.seconds += time.monotonic() - started
    return suite


def print_progress(suite):
    verdict = "FAILED" if suite.failed else "ok"
    skipped = f", {suite.total_skipped()} skipped" if suite.skipped else ""
    print(f"    {suite.name:<12} {verdict:<6} {suite.passed} passed, {suite.failed} failed{skipped}  "
          f"({suite.seconds:.1f} s)", flush=True)


def print_summary(suites, started):
    for suite in suites:
        for problem in suite.problems:
            print(f"\n---- {suite.name}: {problem.rstrip()}")
    print(f"\n{'suite':<13}{'passed':>8}{'failed':>8}{'skipped':>8}{'time':>10}")
    for suite in suites:
        print(f"{suite.name:<13}{suite.passed:>8}{suite.failed:>8}{suite.total_skipped():>8}{suite.seconds:>8.1f} s")
        for note in suite.notes:
            print(f"{'':<13}  {note}")
        for reason, count in suite.skipped.items():
            print(f"{'':<13}  skipped {count}: {reason}")
    print(f"{'':<13}{'':>24}{time.monotonic() - started:>8.1f} s in all\n")
    passed = sum(suite.passed for suite in suites)
    failed = sum(suite.failed for suite in suites)
    skipped = sum(suite.total_skipped() for suite in suites)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or passed == 0 else 0


def main():
    every = ["build", *DEV, "asan-ubsan", "tsan", "fuzzers"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="the suites that take seconds")
    parser.add_argument("--all", action="store_true", help=f"also {', '.join(EXTRA)}")
    parser.add_argument("--contract", action="store_true",
                        help="the suite contract alone, and every check beside torchrun; an hour")
    parser.add_argument("--campaign", action="store_true",
                        help="each kind of fault at each moment of a job's life, under PyTorch DDP; ten minutes")
    parser.add_argument("--only", action="append", choices=every, help="this suite (may be repeated)")
    parser.add_argument("--fuzz-seconds", type=int, default=30)
    arguments = parser.parse_args()
    ordinary = every if arguments.all else [name for name in every if name not in EXTRA]
    if arguments.contract:
        os.environ["DDPRUN_CONTRACT"] = "whole"
        arguments.only = ["contract"]
    if arguments.campaign:
        os.environ["DDPRUN_CAMPAIGN"] = "all"
        arguments.only = ["campaign"]
    chosen = arguments.only or (QUICK if arguments.quick else ordinary)
    started = time.monotonic()
    suites = []

    def done(suite):
        suites.append(suite)
        print_progress(suite)
        return not suite.failed

    print("==> Building preset 'dev' and running the suites", flush=True)
    is_fresh = not os.path.exists(os.path.join(ROOT, "build", "dev", "CMakeCache.txt"))
    built = done(built_suite("build", "dev", arguments.jobs, (), FRESH if is_fresh and "static" not in chosen else ()))
    if built and {"docs", "bench"} & set(chosen):
        programs = ["ddprun", "digits"] + (["char_gpt", "worker_bench_mlp"] if "bench" in chosen else [])
        built = done(built_suite("release", "release", arguments.jobs, programs))
    for name in (name for name in DEV if name in chosen and built):
        done(run_label("dev", name, arguments.jobs))
    if "asan-ubsan" in chosen:
        done(run_asan(arguments.jobs, arguments.all or "asan-ubsan" in (arguments.only or ())))
    if "tsan" in chosen and built:
        done(run_tsan(arguments.jobs))
    if "fuzzers" in chosen:
        done(run_fuzzers(arguments.jobs, arguments.fuzz_seconds))
    return print_summary(suites, started)


if __name__ == "__main__":
    sys.exit(main())
