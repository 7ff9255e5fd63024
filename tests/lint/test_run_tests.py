#!/usr/bin/env python3
"""The counter behind scripts/test's last line, on outputs of GoogleTest, unittest and others."""

import os
import sys
import tempfile
import types
import unittest
import unittest.mock
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "lib"))

import run_tests  # noqa: E402
import set_up  # noqa: E402
from changed import suites_of, unchanged_lints  # noqa: E402
from fuzzers import count, run_fuzzer  # noqa: E402
from suites import Suite, count_cases, count_test, failed_cases, print_summary  # noqa: E402

GOOGLE = """[==========] Running 4 tests from 1 test suite.
[ RUN      ] A.Works
[       OK ] A.Works (0 ms)
[ RUN      ] A.NeedsGpu
/x/a_test.cc:12: Skipped
no GPU here

[  SKIPPED ] A.NeedsGpu (0 ms)
[ RUN      ] A.Breaks
/x/a_test.cc:20: Failure
[  FAILED  ] A.Breaks (3 ms)
[ RUN      ] A.WorksToo
[       OK ] A.WorksToo (1 ms)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.NeedsGpu
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.Breaks
"""
UNITTEST = """test_a (x.T.test_a) ... ok
test_b (x.T.test_b) ... skipped 'no namespaces here'
test_c (x.T.test_c) ... FAIL

----------------------------------------------------------------------
Ran 3 tests in 0.010s

FAILED (failures=1, skipped=1)
"""


def counted(status, output, message=None):
    suite = Suite("s")
    skipped = None
    if message is not None:
        skipped = xml.etree.ElementTree.Element("skipped", message=message)
    count_test(suite, "t", status, output, skipped)
    return suite.passed, suite.failed, suite.skipped


class Counting(unittest.TestCase):
    def test_notes(self):
        suite = Suite("s")
        count_test(suite, "t", "run", "summary: 98 of 99 hold\nRan 1 tests in 0.1s\n\nOK\n", None)
        self.assertEqual(["98 of 99 hold"], suite.notes)

    def test_google(self):
        self.assertEqual((2, 1, ["no GPU here"]), count_cases(GOOGLE))

    def test_unittest(self):
        self.assertEqual((1, 1, ["no namespaces here"]), count_cases(UNITTEST))
        self.assertEqual((2, 0, []), count_cases("Ran 2 tests in 0.1s\n\nOK\n"))
        self.assertEqual((0, 0, ["no reason given"] * 2), count_cases("Ran 2 tests in 0.1s\n\nOK (skipped=2)\n"))

    def test_whole_class_skipped(self):
        text = "setUpClass (x.T) ... skipped 'no hosts'\n\n---\nRan 0 tests in 0.0s\n\nOK (skipped=1)\n"
        self.assertEqual((0, 0, ["no hosts"]), count_cases(text))

    def test_others_count_as_one(self):
        self.assertEqual((1, 0, {}), counted("run", "fine\n"))
        self.assertEqual((0, 1, {}), counted("fail", "not fine\n"))

    def test_a_crash_counts_beside_what_passed(self):
        self.assertEqual((1, 1, {}), counted("fail", "[       OK ] A.B (0 ms)\nSegmentation fault\n"))

    def test_a_program_that_is_not_there_failed(self):
        self.assertEqual((0, 1, {}), counted("notrun", "", "Unable to find executable"))

    def test_skip_return_code(self):
        self.assertEqual((0, 0, {"t: torchrun is not there": 1}),
                         counted("notrun", "torchrun is not there\n", "SKIP_RETURN_CODE=77"))

    def test_the_cases_that_failed_have_names(self):
        self.assertEqual(["A.B", "A.C/1"], failed_cases("[  FAILED  ] A.B (3 ms)\n[  FAILED  ] A.B\n"
                                                        "[  FAILED  ] A.C/1, where GetParam() = 4 (0 ms)\n"))
        self.assertEqual(["test_c (x.T.test_c)"], failed_cases("FAIL: test_c (x.T.test_c)\n-----\n"))
        self.assertEqual([], failed_cases("Segmentation fault\n"))

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(1, print_summary([Suite("empty")], 0))


class Changed(unittest.TestCase):
    """scripts/test --changed: which suites see a change."""

    def test_a_core_has_its_own_tests_and_those_that_drive_it(self):
        self.assertEqual((["unit", "datadriven", "sim", "lint"],
                          {"unit": ["unit/rendezvous/core"], "sim": ["sim/cluster_sim_test"]}),
                         suites_of(["rendezvous/core/job/job.cc"]))
        for core in ("tools/chaos", "tools/doctor", "tools/preflight", "launcher/side_channels", "launcher/stores"):
            self.assertLessEqual(set(suites_of([f"{core}/core/rules.cc"])[0]), {"unit", "server", "lint"}, core)

    def test_a_part_of_the_program_is_seen_by_whole_programs(self):
        self.assertEqual((["e2e", "launches", "unit", "lint"], {"unit": ["unit/tools/watch"]}),
                         suites_of(["tools/watch/top_view.cc"]))

    def test_one_test_may_see_it(self):
        suites, parts = suites_of(["rendezvous/etcd/leadership.cc"])
        self.assertIn("e2e", suites)
        self.assertEqual(["e2e/etcd"], parts["e2e"])
        self.assertNotIn("e2e", suites_of(["rendezvous/etcd/leadership.cc", "tests/e2e/hang_test.py"])[1], "all of it")

    def test_a_test_is_its_own_suite(self):
        self.assertEqual((["cluster", "lint"], {}), suites_of(["tests/cluster/hang_test.py"]))
        self.assertEqual((["unit", "lint"], {"unit": ["unit/base"]}), suites_of(["tests/unit/base/rng_test.cc"]))

    def test_what_everything_includes_has_all_unit_tests(self):
        self.assertEqual((["unit", "process", "server", "lint"], {}), suites_of(["base/fd.cc"]))

    def test_what_is_not_known_has_what_takes_seconds(self):
        suites, parts = suites_of(["new_room/file.cc"])
        self.assertEqual({}, parts)
        self.assertLessEqual({"unit", "datadriven", "sim", "process", "server"}, set(suites))

    def test_lint_leaves_out_checks_that_see_none_of_it(self):
        self.assertEqual({"lint_selftest", "lint_runner_selftest", "lint_shell"},
                         unchanged_lints(["base/fd.cc", "tests/e2e/a.py"]))
        self.assertEqual({"lint_selftest"}, unchanged_lints(["scripts/test", "scripts/lib/builds.py"]))
        self.assertEqual({"lint_shell"}, unchanged_lints(["tests/lint/banned.py"]))

    def test_nothing_changed_is_linted(self):
        self.assertEqual((["lint"], {}), suites_of([]))


class Order(unittest.TestCase):
    """What runs beside what, with builds and tests that only say that they ran."""

    def run_whole(self, sanitizers, set_up=()):
        said = []
        fakes = {"built_suite": lambda *a, **k: Suite("build"), "build_sanitizers": sanitizers(said),
                 "labels_of": lambda folder: {"job": ["e2e"], "speed": ["e2e", "quiet"]},
                 "run_suites": lambda preset, names, jobs, chosen: said.append(sorted(chosen)) or [],
                 "run_joined": lambda name, preset, labels, jobs, chosen: said.append(sorted(chosen)) or Suite(name),
                 "print_progress": lambda suite: None}
        with unittest.mock.patch.multiple(run_tests, **fakes):
            words = types.SimpleNamespace(jobs=2, all=False, only=["e2e"], quick=False, changed=None, fuzz_seconds=1,
                                          set_up=False, contract=False)
            run = run_tests.Run(words)
            run.set_up.wait = lambda: said.append("set up") or set_up
            run.run_whole(["e2e"])
        return said

    def test_what_measures_comes_after_the_builds(self):
        said = self.run_whole(lambda said: lambda *a, **k: said.append("built") or [])
        self.assertCountEqual(["built", "set up", ["job"]], said[:-1])
        self.assertEqual(["speed"], said[-1])

    def test_what_tests_need_is_waited_for(self):
        said = self.run_whole(lambda said: lambda *a, **k: [])
        self.assertEqual(["set up", ["job"], ["speed"]], said)

    def test_nothing_runs_without_what_it_needs(self):
        failed = Suite("set up")
        failed.failed = 1
        self.assertEqual(["set up"], self.run_whole(lambda said: lambda *a, **k: [], [failed]))

    def test_an_error_of_the_builds_beside_is_not_lost(self):
        def fails(*a, **k):
            raise OSError("no space left")
        with self.assertRaises(OSError):
            self.run_whole(lambda said: fails)


class Environments(unittest.TestCase):
    """What is installed beside the build, by a scripts/setup that only says so."""

    def set_up(self, script, **words):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.mkdir(os.path.join(folder.name, "scripts"))
        program = os.path.join(folder.name, "scripts", "setup")
        with open(program, "w", encoding="utf-8") as text:
            text.write("#!/bin/sh\n" + script)
        os.chmod(program, 0o755)
        log = os.path.join(folder.name, "build", "setup.log")
        with unittest.mock.patch.multiple(set_up, ROOT=folder.name, LOG=log), unittest.mock.patch("builtins.print"):
            begun = set_up.SetUp(**words)
            told = [begun.wait(), begun.wait()]
        with open(log, encoding="utf-8") as text:
            return told, text.read()

    def test_the_first_who_asks_is_told(self):
        (first, second), log = self.set_up("echo installing $*", wanted=True, options=["--frameworks"])
        self.assertEqual([0], [suite.failed for suite in first])
        self.assertEqual([], second)
        self.assertEqual("installing --frameworks\n", log)

    def test_all_who_ask_are_told_of_a_failure(self):
        told, _ = self.set_up("echo no network >&2; exit 1", wanted=True, options=[])
        for suites in told:
            self.assertEqual([1], [suite.failed for suite in suites])
            self.assertIn("no network", suites[0].problems[0])

    def test_nothing_is_installed_that_nobody_wants(self):
        self.assertEqual([], set_up.SetUp(wanted=False, options=[]).wait())


class Fuzzers(unittest.TestCase):
    """What is told of a fuzzer, with programs that only say what libFuzzer says."""

    def run_one(self, script, seeds=False):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "a_fuzzer")
            with open(program, "w", encoding="utf-8") as text:
                text.write("#!/bin/sh\n" + script)
            os.chmod(program, 0o755)
            if seeds:
                os.mkdir(os.path.join(folder, "a"))
            suite = Suite("fuzzers")
            with unittest.mock.patch("builtins.print"):
                count(suite, run_fuzzer(program, 7, folder, corpus=folder))
            return suite, folder

    def test_executions_and_coverage(self):
        suite, _ = self.run_one("""echo '#2 INITED cov: 8 ft: 9 corp: 1/1b' >&2
            echo '#4096 NEW    cov: 120 ft: 345 corp: 9/1Kb' >&2; echo 'stat::number_of_executed_units: 4711' >&2""")
        self.assertEqual((1, 0), (suite.passed, suite.failed))
        self.assertRegex(suite.notes[0], r"^a_fuzzer +4,711 executions in \d+ s, coverage 120 \(345 features\)$")

    def test_a_finding_names_the_command_that_repeats_it(self):
        suite, folder = self.run_one("echo 'Test unit written to /x/a-crash-1' >&2; exit 77")
        self.assertEqual((0, 1), (suite.passed, suite.failed))
        self.assertIn(f"a_fuzzer; again by: {folder}/a_fuzzer /x/a-crash-1\n", suite.problems[0])

    def test_seeds_are_read_and_not_written(self):
        script = """[ "$(basename "$2")" = a ] && [ -d "$2" ] && [ "$1" != "$2" ] && touch "$1/new" """
        self.assertEqual(1, self.run_one(script, seeds=True)[0].passed)

    def test_twin_without_seeds(self):
        self.assertEqual(1, self.run_one("""case $2 in -*) ;; *) exit 1 ;; esac""")[0].passed)


if __name__ == "__main__":
    unittest.main(verbosity=2, buffer=True)
