#!/usr/bin/env python3
"""fence.pml holds in all its states, and each part of the fence that is left out is missed in one of them."""

import os
import shutil
import subprocess
import tempfile
import unittest

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fence.pml")
PATIENCE = 100  # seconds; it takes one


@unittest.skipIf(shutil.which("spin") is None, "no spin (Debian package spin)")
class Fence(unittest.TestCase):
    def search(self, *left_out):
        """What pan says of all states: its lines."""
        with tempfile.TemporaryDirectory() as folder:
            def run(*command):
                result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        check=True, timeout=PATIENCE)
                return result.stdout
            run("spin", "-a", *(f"-D{name}" for name in left_out), MODEL)
            run("cc", "-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c")
            # A service that waits for the lock is no deadlock, so -E; -b: a search that isn't deep enough is an error.
            return run("./pan", "-E", "-b", "-m100000")

    def assert_holds(self, text):
        self.assertIn("errors: 0", text)
        self.assertIn("Full statespace search", text)
        self.assertNotIn("max search depth too small", text)

    def assert_broken(self, text, what):
        self.assertIn(f"assertion violated ({what})", text)

    def test_a_journal_in_a_file(self):
        self.assert_holds(self.search("FILE"))

    def test_twin_a_file_without_its_lock(self):
        self.assert_broken(self.search("FILE", "NO_LOCK"), "known>=obeyed[agent]")

    def test_twin_a_file_that_is_written_after_agents_heard(self):
        self.assert_broken(self.search("FILE", "TELL_FIRST"), "known<=record")

    def test_a_store_with_leases(self):
        self.assert_holds(self.search())

    def test_twin_a_store_that_takes_every_write(self):
        self.assert_broken(self.search("NO_GUARD"), "known>=obeyed[agent]")

    def test_twin_agents_that_obey_any_term(self):
        """The guard alone isn't enough: a service that stood still may send, late, what it was allowed to write."""
        self.assert_broken(self.search("NO_TERM"), "known>=obeyed[agent]")

    def test_twin_a_store_that_is_written_after_agents_heard(self):
        self.assert_broken(self.search("TELL_FIRST"), "known<=record")


if __name__ == "__main__":
    unittest.main(verbosity=2)
