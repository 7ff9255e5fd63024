#!/usr/bin/env python3
"""Each bug of survivor_mutants.toml is noticed by a script of tests/datadriven/supervisor."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import mutate  # noqa: E402

PROGRAM = os.path.join(os.environ.get("DDPRUN_MUTANTS", ""), "mutated_scripts")
NAMED = {"name", "file", "original", "mutated", "also"}


def run(mutant):
    """The scripts that fail with that mutant awake; or what else is said."""
    result = subprocess.run([PROGRAM, "--gtest_filter=Supervisor.*"], env={**os.environ, "AWAKE_MUTANT": mutant}, timeout=60,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    failed = sorted({line.split()[3] for line in result.stdout.splitlines() if line.startswith("[  FAILED  ] Supervisor.")})
    return failed or ([] if result.returncode == 0 else ["an invariant"])


class SurvivorMutants(unittest.TestCase):
    mutants = mutate.read_mutants(os.path.join(HERE, "survivor_mutants.toml"))

    def test_twin_all_asleep(self):
        self.assertEqual([], run(""))

    def test_each_has_its_own_name_and_no_other_keys(self):
        mutate.check_entries(self, self.mutants, NAMED)


def test_of(mutant):
    def test(self):
        by = run(mutant["name"])
        print(f"{mutant['name']:45s} {' '.join(by) or '-'}", flush=True)
        self.assertTrue(by, "nobody notices it: write a script")
    return test


for _mutant in SurvivorMutants.mutants:
    setattr(SurvivorMutants, f"test_{_mutant['name']}", test_of(_mutant))


if __name__ == "__main__":
    unittest.main(verbosity=2)
