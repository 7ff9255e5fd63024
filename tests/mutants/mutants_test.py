#!/usr/bin/env python3
"""Each bug of mutants.toml is noticed: by a script of tests/datadriven or by the simulation, and by that where it says so."""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import mutate  # noqa: E402

FOLDER = os.environ.get("DDPRUN_MUTANTS", "")
PATIENCE = 600  # seconds; a mutant that makes a simulation endless is noticed by that
# With --all, the simulation also runs the mutants that scripts notice, which takes as long as all else, and all scripts run, not
# only up to the first that notices the mutant.
WHOLE = os.environ.get("DDPRUN_TEST_WHOLE") == "1"
NAMED = {"simulation", "name", "rule", "file", "original", "mutated", "also"}

Outcome = collections.namedtuple("Outcome", "noticed by")


def run(program, mutant, *arguments):
    """What a test program says with that mutant awake: (it fails, its words)."""
    environment = {**os.environ, "AWAKE_MUTANT": mutant}
    try:
        result = subprocess.run([os.path.join(FOLDER, program), *arguments], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return True, f"no end within {PATIENCE} s"
    return result.returncode != 0, result.stdout


def scripts(mutant):
    failed, text = run("mutated_scripts", mutant, *(() if WHOLE else ["--gtest_fail_fast"]))
    by = sorted({line.split()[3] for line in text.splitlines() if line.startswith("[  FAILED  ] Rendezvous.")})
    return Outcome(failed, by[0] if by else "an invariant")


def simulation(mutant, test):
    failed, text = run("mutated_sim", mutant, f"--gtest_filter=ClusterSim.{test}", "--gtest_fail_fast", "--whole", "yes")
    by = [line for line in text.splitlines() if line.startswith("seed ")]
    return Outcome(failed, by[0] if by else "an invariant, or the totals of all seeds")


def noticed(mutant):
    """(by scripts, by the simulation; None: it wasn't asked)."""
    by_scripts = scripts(mutant.get("name", ""))
    asked = WHOLE or not by_scripts.noticed or mutant.get("simulation", False)
    named = mutant.get("simulation")
    test = named if isinstance(named, str) and not WHOLE else "*"
    return by_scripts, simulation(mutant.get("name", ""), test) if asked else None


class Mutants(unittest.TestCase):
    mutants = mutate.read_mutants()

    @classmethod
    def setUpClass(cls):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            names = ["", *(mutant["name"] for mutant in cls.mutants)]
            cls.noticed = dict(zip(names, pool.map(noticed, [{}, *cls.mutants])))

    def test_twin_all_asleep(self):
        """The original passes, so what fails with a mutant fails by that."""
        for outcome in self.noticed[""]:
            self.assertFalse(outcome.noticed, outcome.by)

    def test_each_rule_has_one(self):
        """R9 is about names on the wire, but for the token."""
        self.assertEqual({f"R{number}" for number in range(1, 16)}, {mutant["rule"] for mutant in self.mutants})

    def test_each_has_its_own_name_and_no_other_keys(self):
        names = [mutant["name"] for mutant in self.mutants]
        self.assertEqual(len(set(names)), len(names))
        for mutant in self.mutants:
            self.assertEqual(set(), set(mutant) - NAMED, mutant["name"])

    def test_a_failed_seed_shrinks_to_a_handful_of_faults(self):
        """Failed seeds have about twenty faults, some two hundred; each of these bugs needs one."""
        for name in ("port_reused", "slots_not_kept", "isolation_unnoticed", "kills_from_outside_blamed"):
            seed = re.match(r"seed (\d+)", self.noticed[name][1].by)[1]
            _, text = run("mutated_sim", name, "--shrink", seed)
            self.assertRegex(text, rf"^seed {seed} in short: [12] of \d+ faults", name)

    def test_one_that_does_not_fit_its_source_is_an_error(self):
        mutant = {"name": "stale", "file": "a.cc", "original": "x = 1;", "mutated": "x = 2;"}
        for text in ("", "x = 1; y(); x = 1;"):
            with self.assertRaisesRegex(mutate.MutantError, "mutant stale: .*mutants.toml must follow the source"):
                mutate.mutate("a.cc", text, [mutant])
        other = {**mutant, "name": "other", "original": "= 1;\ny();"}
        with self.assertRaisesRegex(mutate.MutantError, "overlap in a.cc"):
            mutate.mutate("a.cc", "x = 1;\ny();", [mutant, other])

    def test_statements_and_expressions(self):
        statement = {"name": "s", "file": "a.cc", "original": "x = 1;", "mutated": ""}
        self.assertIn('if (DDPRUN_MUTANT("s")) {  } else { x = 1; }', mutate.mutate("a.cc", "{ x = 1; }", [statement]))
        expression = {"name": "e", "file": "a.cc", "original": "a < b", "mutated": "true"}
        self.assertIn('(DDPRUN_MUTANT("e") ? (true) : (a < b))', mutate.mutate("a.cc", "if (a < b) f();", [expression]))


def test_of(mutant):
    def test(self):
        by_scripts, by_simulation = self.noticed[mutant["name"]]
        print(f"{mutant['rule']:4s}{mutant['name']:35s} {by_scripts.by if by_scripts.noticed else '-':50s} "
              f"{'' if by_simulation is None else by_simulation.by[:120] if by_simulation.noticed else '-'}", flush=True)
        self.assertTrue(by_scripts.noticed or by_simulation.noticed, "nobody notices it: write a script, or a checker")
        if mutant.get("simulation", False):
            self.assertTrue(by_simulation.noticed, "the simulation doesn't notice it any more")
    return test


for _mutant in Mutants.mutants:
    setattr(Mutants, f"test_{_mutant['name']}", test_of(_mutant))


if __name__ == "__main__":
    unittest.main(verbosity=2)
