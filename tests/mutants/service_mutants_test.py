#!/usr/bin/env python3
"""Each bug of service_mutants.toml is noticed by the end-to-end test that it names, which passes without it."""

import concurrent.futures
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..")
sys.path.insert(0, HERE)

import mutate  # noqa: E402

PROGRAM = os.path.join(os.environ.get("DDPRUN_MUTANTS", ""), "mutated_ddprun")
NAMED = {"name", "folder", "by", "file", "original", "mutated", "also"}
PATIENCE = 300  # seconds for one test; a bug that makes it endless is noticed by that


def run(mutant, test):
    """Runs the test with that mutant awake: ("passed", "failed" or "skipped", the test's output)."""
    path, name = test.split()
    # A bug has most of these tests wait for what never comes: as long as on a quiet machine, no longer.
    slowness = {"DDPRUN_TEST_SLOWNESS": "0.25"} if mutant else {}
    environment = {**os.environ, "DDPRUN_BIN": PROGRAM, "AWAKE_MUTANT": mutant, **slowness}
    try:
        result = subprocess.run([sys.executable, os.path.join(TESTS, path), name], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "failed", f"no end within {PATIENCE} s"
    if result.returncode != 0:
        return "failed", result.stdout
    return ("skipped" if "skipped=" in result.stdout else "passed"), result.stdout


class ServiceMutants(unittest.TestCase):
    mutants = mutate.read_mutants(os.path.join(HERE, "service_mutants.toml"))

    @classmethod
    def setUpClass(cls):
        tests = sorted({mutant["by"] for mutant in cls.mutants})
        runs = [("", test) for test in tests] + [(mutant["name"], mutant["by"]) for mutant in cls.mutants]
        with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:  # most of them wait
            cls.outcomes = dict(zip(runs, pool.map(lambda each: run(*each), runs)))

    def test_twins_all_asleep(self):
        """Without a bug the same program passes, so a test that fails with one fails because of it."""
        for (mutant, test), (outcome, text) in self.outcomes.items():
            if mutant == "":
                self.assertNotEqual("failed", outcome, f"{test}: {text[-4000:]}")

    def test_each_has_its_own_name_and_no_other_keys(self):
        mutate.check_entries(self, self.mutants, NAMED)


def test_of(mutant):
    def test(self):
        outcome, text = self.outcomes[mutant["name"], mutant["by"]]
        if outcome == "skipped":
            self.skipTest(f"{mutant['by']} needs what isn't here")
        self.assertEqual("failed", outcome, text[-2000:])
    return test


for _mutant in ServiceMutants.mutants:
    setattr(ServiceMutants, f"test_{_mutant['name']}", test_of(_mutant))


if __name__ == "__main__":
    unittest.main(verbosity=2)
