#!/usr/bin/env python3
"""A record of torchrun that is missing, stale, changed or no longer true makes the checks fail, and says what to run."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402
import record  # noqa: E402

CHECK_14 = "test_14_nproc_with_dashes"
CHECK_1 = "test_01_no_arguments"
# Says what check 1 wants of torchrun, and not what torchrun says.
OTHER_TORCHRUN = "#!/bin/sh\necho 'usage: as you like' >&2\nexit 2\n"


class RecordTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddprun-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(record.FOLDER, self.folder, dirs_exist_ok=True)
        self.version = jobs.PINNED.torch  # its record is changed
        with open(self.path("cli.json"), encoding="utf-8") as source:
            self.content = json.load(source)

    def path(self, name):
        return os.path.join(self.folder, self.version, name)

    def change(self, test, path, value, sealed=True):
        """Sets what lies at this path in the first job of a test's record."""
        entry = self.content["tests"][test]
        place = entry["jobs"][0]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        if sealed:
            entry["sum"] = record.sum_of(entry["jobs"])

    def run_check(self, test, **env):
        """(passed, output) of one check of cli_test.py beside this test's copy of the record."""
        with open(self.path("cli.json"), "w", encoding="utf-8") as sink:
            json.dump(self.content, sink)
        return self.run_beside(test, **env)

    def run_beside(self, test, **env):
        result = subprocess.run(
            [sys.executable, os.path.join(jobs.HERE, "cli_test.py"), test], capture_output=True, text=True, check=False,
            timeout=10 * jobs.PATIENCE,
            env={**os.environ, "DDPRUN_CONTRACT": "ordinary", "DDPRUN_CONTRACT_RECORD": self.folder, **env})
        return result.returncode == 0, result.stdout + result.stderr

    def assert_caught(self, test, *words, **env):
        passed, output = self.run_check(test, **env)
        self.assertFalse(passed, output)
        for word in (*words, f"DDPRUN_CONTRACT=record DDPRUN_CONTRACT_TORCH={self.version} "
                             f"python3 tests/contract/cli_test.py {test}"):
            self.assertIn(word, output)

    def test_the_true_record_holds(self):
        """Negative control of all others."""
        passed, output = self.run_check(CHECK_14)
        self.assertTrue(passed, output)

    def test_another_status_of_torchruns(self):
        self.change(CHECK_14, ("nodes", "node", "status"), 7)
        self.assert_caught(CHECK_14, "7", "0")

    def test_another_environment_of_torchruns_workers(self):
        self.change(CHECK_14, ("workers", 1, "environment", "LOCAL_WORLD_SIZE"), "3")
        self.assert_caught(CHECK_14, f"check 14: ddprun isn't as torchrun {self.version} was",
                           "/0/workers/1/environment/LOCAL_WORLD_SIZE: recorded '3', seen '2'")

    def test_another_environment_of_the_newest_torchruns_workers(self):
        self.version = jobs.NEWEST.torch
        with open(self.path("cli.json"), encoding="utf-8") as source:
            self.content = json.load(source)
        self.change(CHECK_14, ("workers", 1, "environment", "LOCAL_WORLD_SIZE"), "3")
        self.assert_caught(CHECK_14, f"check 14: ddprun isn't as torchrun {self.version} was")

    def test_changed_by_hand(self):
        self.change(CHECK_14, ("workers", 1, "environment", "LOCAL_WORLD_SIZE"), "3", sealed=False)
        self.assert_caught(CHECK_14, f"{CHECK_14} was not written by torchrun")

    def test_another_torchrun(self):
        """The whole comparison beside a torchrun that fulfils the check in other words."""
        home = os.path.join(self.folder, "ddprun", "py-full", "bin")
        os.makedirs(home)
        with open(os.path.join(home, "torchrun"), "w", encoding="utf-8") as sink:
            sink.write(OTHER_TORCHRUN)
        os.chmod(os.path.join(home, "torchrun"), 0o755)
        self.assert_caught(CHECK_1, f"check 1: torchrun {self.version} isn't as it was", "recorded 'usage: torchrun",
                           "seen 'usage: as you like'", DDPRUN_CONTRACT="whole", DDPRUN_CONTRACT_TORCH=self.version,
                           XDG_CACHE_HOME=self.folder)

    def test_no_record_of_a_test(self):
        del self.content["tests"][CHECK_14]
        self.assert_caught(CHECK_14, "no record of this test")

    def test_record_of_another_torch(self):
        self.content["torch"] = "2.10.0"
        passed, output = self.run_check(CHECK_14)
        self.assertFalse(passed)
        self.assertIn(f"is of torch 2.10.0, and {jobs.PINS} pins {self.version}", output)
        self.assertIn(record.how_to_record(jobs.PINNED, "cli"), output)

    def test_no_record_at_all(self):
        os.remove(self.path("cli.json"))
        passed, output = self.run_beside(CHECK_14)
        self.assertFalse(passed)
        self.assertIn(f"cli.json is missing. Write it: {record.how_to_record(jobs.PINNED, 'cli')}", output)

    def test_what_no_test_shows_any_more(self):
        self.assertIn(CHECK_14, contract.orphans(jobs.PINNED, "cli", []))

    def test_what_differs_from_run_to_run_is_none_of_it(self):
        texts = ["E0102 03:04:05.678000 4711 torch/x.py:98] failed (exitcode: 3) (pid: 4712) at /tmp/a/run_0a1b2c3d/attempt_0",
                 "E1112 13:14:15.999000 812 torch/x.py:98] failed (exitcode: 3) (pid: 999) at /tmp/b/run_z0x99zz9/attempt_0"]
        plain = [record.plain(text, types.SimpleNamespace(folder=folder)) for text, folder in zip(texts, ("/tmp/a", "/tmp/b"))]
        self.assertEqual(plain[0], plain[1])
        # Negative controls: what torchrun itself says stays.
        for word in ("exitcode: 3", "torch/x.py:98", "attempt_0", "/job/run_0000"):
            self.assertIn(word, plain[0])

    def test_every_file_is_whole_and_true(self):
        self.assertEqual({torchrun.torch for torchrun in jobs.TORCHRUNS}, set(os.listdir(record.FOLDER)))
        for torchrun in jobs.TORCHRUNS:
            for name in os.listdir(os.path.join(record.FOLDER, torchrun.torch)):
                self.assertTrue(record.load(torchrun, name.removesuffix(".json")), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
