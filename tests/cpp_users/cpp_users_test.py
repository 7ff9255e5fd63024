#!/usr/bin/env python3
"""Programs as users write them, against the installed ddprun: each does what its head says. CPP_USERS=NAME,…: only these."""

import concurrent.futures
import contextlib
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from bed import SLOW  # noqa: E402
from installed import Installed  # noqa: E402
from programs import FOLDER, Run, all_programs, difference  # noqa: E402

LINES_MAX = 60
WORLDS = (1, 2, 3)


class CppUsers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.installed = Installed()
        cls.addClassCleanup(cls.installed.close)
        cls.installed.build(FOLDER)
        wanted = os.environ.get("CPP_USERS")
        cls.programs = [one for one in all_programs() if wanted is None or one.name in wanted.split(",")]

    def check_all(self, programs, check):
        """A few side by side: most of a job's time its processes wait for each other."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = [(program, pool.submit(self.check_one, check, program)) for program in programs]
        for program, result in results:
            with self.subTest(program.name):
                result.result()

    @staticmethod
    def check_one(check, program):
        with contextlib.ExitStack() as beds:  # a user has 128 instances of inotify
            check(program, beds)

    def run_to_end(self, beds, program, world, kills=0, launch=()):
        run = Run(self.installed, program, world, launch)
        beds.callback(run.bed.close)
        try:
            status = run.finish(kills)
        finally:
            left = run.bed.stop()
        text = run.text.decode(errors="replace")
        self.assertEqual({}, left, text)
        return run, status, text

    def check_good(self, program, beds):
        runs = []
        for world in WORLDS:
            run, status, text = self.run_to_end(beds, program, world)
            self.assertEqual(0, status, text)
            runs.append((run, f"{world} workers"))
        # What a Session's worker needs to be replaced no option says.
        launch = ("--max_restarts", "2") if "RUN" in program.head else ()
        run, status, text = self.run_to_end(beds, program, 2, kills=2, launch=launch)
        self.assertEqual(0, status, text)
        for other, what in [*runs[1:], (run, "two kills")]:
            apart = difference(runs[0][0].model(), other.model())
            self.assertLessEqual(apart, program.tolerance, f"{program.name}: parameters of 1 worker and of {what}")
        for other, what in runs[1:]:
            self.check_losses(runs[0][0].losses(), other.losses(), program.tolerance,
                              f"{program.name}: loss of step %s on {what}")
            self.check_losses(runs[0][0].epochs(), other.epochs(), program.tolerance + 2e-4,
                              f"{program.name}: loss of epoch %s on {what}")

    def check_losses(self, expected, losses, tolerance, what):
        self.assertEqual(expected.keys(), losses.keys(), what)
        for number, loss in expected.items():
            self.assertLessEqual(abs(losses[number] - loss), tolerance * max(abs(loss), 1), what % number)

    def check_wrong(self, program, beds):
        run, status, text = self.run_to_end(beds, program, 2)
        self.assertNotEqual(0, status, text)
        for words in program.expected:
            self.assertRegex(text, words)
        self.assertLessEqual(run.seconds(), program.seconds * SLOW, text)

    def test_good_ones_train_the_same_on_any_workers_and_over_kills(self):
        self.check_all([one for one in self.programs if one.is_good], self.check_good)

    def test_wrong_ones_end_at_once_and_say_what_to_do(self):
        self.check_all([one for one in self.programs if one.compiles and not one.is_good], self.check_wrong)

    def test_what_does_not_compile_says_what_to_do(self):
        for program in self.programs:
            if program.compiles:
                continue
            with self.subTest(program.name):
                text = self.installed.refuse_to_compile(program.path)
                for words in program.expected[1:]:
                    self.assertRegex(text, words)
                self.assertEqual(1, text.count("error: "), text)

    def test_programs_are_those_of_users(self):
        for program in self.programs:
            self.assertLessEqual(len(program.lines), LINES_MAX, program.name)
            self.assertFalse(re.search(r'"(worker|base|tests)/', "\n".join(program.lines)), program.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
