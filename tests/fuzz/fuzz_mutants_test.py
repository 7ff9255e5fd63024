#!/usr/bin/env python3
"""Each bug of mutants.toml is noticed by the fuzz target that it names, with the fixed inputs of its smoke test."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "mutants"))

import mutate  # noqa: E402

PROGRAM = os.path.join(os.environ.get("DDPRUN_MUTANTS", ""), "mutated_fuzz")
NAMED = {"name", "folder", "by", "file", "original", "mutated"}


def run(mutant, tests):
    """What the program says with that mutant awake: (it fails, its words)."""
    result = subprocess.run([PROGRAM, "--gtest_fail_fast", f"--gtest_filter={tests}.*"], check=False,
                            env={**os.environ, "AWAKE_MUTANT": mutant}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace", timeout=200)
    return result.returncode != 0, result.stdout


class FuzzMutants(unittest.TestCase):
    mutants = mutate.read_mutants(os.path.join(HERE, "mutants.toml"))

    def test_twin_all_asleep(self):
        failed, text = run("", "*")
        self.assertFalse(failed, text[-4000:])

    def test_each_has_its_own_name_and_no_other_keys(self):
        names = [mutant["name"] for mutant in self.mutants]
        self.assertEqual(len(set(names)), len(names))
        for mutant in self.mutants:
            self.assertEqual(NAMED, set(mutant), mutant["name"])


def test_of(mutant):
    def test(self):
        failed, _ = run(mutant["name"], mutant["by"])
        self.assertTrue(failed, "the target doesn't notice it")
    return test


for _mutant in FuzzMutants.mutants:
    setattr(FuzzMutants, f"test_{_mutant['name']}", test_of(_mutant))


if __name__ == "__main__":
    unittest.main(verbosity=2)
