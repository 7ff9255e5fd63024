#!/usr/bin/env python3
"""Runs the test suites and closes with one summary; called by scripts/test, which installs and builds.

Every suite is a ctest label (docs/TESTING.md). Cases are counted one by one (GoogleTest,
unittest), skipped ones with their reason.
"""

import argparse
import concurrent.futures
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from builds import (ROOT, built_suite, configure, folder_of, refresh, run_joined, run_suites, targets_of,  # noqa: E402
                    tests_in, tsan_tests)
from changed import changed_paths, changed_suites, unchanged_lints  # noqa: E402
from fuzzers import run_fuzzers  # noqa: E402
from set_up import SetUp  # noqa: E402
from suites import labels_of, print_progress, print_summary  # noqa: E402

# Small programs without LibTorch. An ordinary run has them only under AddressSanitizer and UBSan, which find all that a plain run
# would; --quick, --changed and --only run them in the build dev.
CORE = ["unit", "datadriven", "sim", "fuzz", "process", "server"]
# Whole programs, in the build release, which is what users run.
WHOLE = ["worker", "gpu", "e2e", "contract", "launches", "cluster", "campaign", "slurm", "python", "packaging", "docs", "mutants",
         "spin"]
# Suites that only --all runs: they compile everything once more, or only measure.
EXTRA = ["frameworks", "wheel", "schedules", "static", "bench", "fuzzers"]
QUICK = [*CORE, "lint"]
ORDINARY = [*WHOLE, "lint", "asan-ubsan", "tsan"]
EVERY = ["build", *CORE, *WHOLE, "lint", *EXTRA, "asan-ubsan", "tsan"]


def build_sanitizers(chosen, whole, jobs, idle):
    """Builds what the suites asan-ubsan and tsan need; the two builds' suites."""
    built = []
    if "asan-ubsan" in chosen:
        targets = targets_of(CORE) + (["tests_e2e", "tests_cluster"] if whole else [])
        built.append(built_suite("asan-ubsan", jobs, targets, idle=idle))
    if "tsan" in chosen:
        problem = configure("tsan")
        built.append(built_suite("tsan", jobs, [] if problem else tsan_tests(whole), idle=idle))
    return built


def run_sanitizers(chosen, whole, jobs):
    """Whole programs (e2e, cluster) only with `whole`."""
    suites = []
    if "asan-ubsan" in chosen:
        suites.append(run_joined("asan-ubsan", "asan-ubsan", CORE + (["e2e", "cluster"] if whole else []), jobs))
    if "tsan" in chosen:
        suites.append(run_joined("tsan", "tsan", CORE, jobs, tsan_tests(whole)))
    return suites


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="the suites that take seconds")
    parser.add_argument("--changed", nargs="?", const="HEAD", metavar="COMMIT",
                        help="the suites of what was changed since COMMIT (HEAD: what isn't committed)")
    parser.add_argument("--all", action="store_true", help=f"also {', '.join(EXTRA)}, and all that other suites leave out")
    parser.add_argument("--contract", action="store_true",
                        help="the suite contract alone, and every check beside the torchruns; forty minutes")
    parser.add_argument("--campaign", action="store_true",
                        help="each kind of fault at each moment of a job's life, under PyTorch DDP; ten minutes")
    parser.add_argument("--only", action="append", choices=EVERY, help="this suite (may be repeated)")
    parser.add_argument("--fuzz-seconds", type=int, default=30)
    parser.add_argument("--set-up", action="store_true", help="install what tests need, beside the build")
    arguments = parser.parse_args()
    if arguments.contract:
        os.environ["DDPRUN_CONTRACT"] = "whole"
        arguments.only = ["contract"]
    if arguments.campaign:
        os.environ["DDPRUN_CAMPAIGN"] = "all"
        arguments.only = ["campaign"]
    if arguments.all:
        os.environ["DDPRUN_TEST_WHOLE"] = "1"
        os.environ.setdefault("DDPRUN_TEST_ABSENCE", "60")  # seconds without a rendezvous service
    return arguments


def choose(arguments):
    """The choice of what to run: (suites, {suite: its parts, unless it runs as a whole})."""
    if arguments.changed:
        return changed_suites(ROOT, arguments.changed)
    if arguments.only:
        return arguments.only, {}
    if arguments.quick:
        return QUICK, {}
    return (EVERY if arguments.all else ORDINARY), {}


class Run:
    """One run: builds and runs the suites in order, and keeps their results."""

    def __init__(self, arguments):
        self.jobs = arguments.jobs
        self.whole = arguments.all or "asan-ubsan" in (arguments.only or ())
        self.fuzz_seconds = arguments.fuzz_seconds
        self.changed = arguments.changed
        self.chosen, self.parts = choose(arguments)
        self.set_up = SetUp(arguments.set_up, ["--frameworks"] if "frameworks" in self.chosen else
                            ["--contract"] if arguments.contract else [])
        self.suites = []

    def done(self, suites):
        self.suites += suites
        for suite in suites:
            print_progress(suite)
        return not any(suite.failed for suite in suites)

    def of(self, names):
        return [name for name in names if name in self.chosen]

    def run(self):
        print(f"==> Building and running: {' '.join(self.chosen)}", flush=True)
        core = self.of([*CORE, *(() if self.of(WHOLE) else ("lint",))])
        whole = self.of([*WHOLE, "frameworks", "wheel", "schedules", "bench"])
        if core or self.of(["build"]):
            self.run_core(core)
        if whole:
            self.run_whole(whole)
        elif self.of(["asan-ubsan", "tsan"]):
            self.run_sanitized(idle=False)
        if self.of(["static"]):
            built = built_suite("static", self.jobs, ["ddprun", "ddprun_worker"])
            if self.done([built, *self.set_up.wait()]):
                self.done(run_suites("static", ["static"], 1))
        if self.of(["fuzzers"]):
            self.done([run_fuzzers(self.jobs, self.fuzz_seconds)])

    def run_core(self, names):
        tests, targets = None, ["all"] if self.of(["build"]) else targets_of(names)
        configured = self.changed and not refresh("dev")
        if configured:
            tests = tests_in(self.parts) - unchanged_lints(changed_paths(ROOT, self.changed))
            if targets != ["all"]:
                labels = labels_of(folder_of("dev"))
                targets = [test for test in sorted(tests) if labels[test][0] in names and labels[test][0] in CORE]
        with concurrent.futures.ThreadPoolExecutor() as others:
            # One changed file keeps one processor busy, so lint, which needs no build, runs beside it.
            lint = [name for name in names if configured and name == "lint"]
            linted = others.submit(run_suites, "dev", lint, 1, tests) if lint else None
            built = self.done([built_suite("dev", self.jobs, targets, configured=configured), *self.set_up.wait()])
            if linted:
                self.done(linted.result())
        names = [name for name in names if name not in lint]
        if built and names:
            self.done(run_suites("dev", names, self.jobs, tests))

    def is_wanted(self, test, suite):
        """Whether a test of whole programs was chosen; part "e2e/etcd" is the test e2e_etcd."""
        return suite not in self.parts or test in [part.replace("/", "_") for part in self.parts[suite]]

    def run_whole(self, names):
        """Runs whole programs, some side by side, because they mostly wait for each other. The sanitizers' builds and tests run
        beside these and their build, which leaves a processor free now and then."""
        bench = "ON" if "bench" in names else "OFF"
        options = ["-DDDPRUN_TESTS=ON", f"-DDDPRUN_BENCH={bench}"]
        with concurrent.futures.ThreadPoolExecutor() as others:
            sanitized = others.submit(self.run_sanitized, idle=True)
            built = self.done([built_suite("release", self.jobs, targets_of(names), options), *self.set_up.wait()])
            labels = labels_of(folder_of("release")) if built else {}
            labels = {test: its for test, its in labels.items() if self.is_wanted(test, its[0])}
            quiet = {test for test, its in labels.items() if "quiet" in its and its[0] in names}
            beside = [*(name for name in names if name != "bench"), *self.of(["lint"])] if built else []
            if beside:
                self.done(run_suites("release", beside, self.jobs + 2, set(labels) - quiet))
            sanitized.result()  # raises what went wrong there: nothing is left out silently
        if quiet:  # they measure, and so nothing runs beside them
            self.done([run_joined("quiet", "release", names, 1, quiet)])
        if built and "bench" in names:
            self.done(run_suites("release", ["bench"], 1))

    def run_sanitized(self, idle):
        built = build_sanitizers(self.chosen, self.whole, self.jobs, idle)
        if built and self.done([*built, *self.set_up.wait()]):
            self.done(run_sanitizers(self.chosen, self.whole, self.jobs))


def main():
    started = time.monotonic()
    run = Run(parse_arguments())
    run.run()
    return print_summary(run.suites, started)


if __name__ == "__main__":
    sys.exit(main())
