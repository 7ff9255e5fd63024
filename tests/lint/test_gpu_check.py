#!/usr/bin/env python3
"""scripts/lib/gpu_check.py runs checks that pass, fail, hang and leave something running."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

LIB = Path(__file__).resolve().parent.parent.parent / "scripts" / "lib"
sys.path.insert(0, str(LIB))

import gpu_check  # noqa: E402
from checks import Check  # noqa: E402
from gpu_check import Run  # noqa: E402
from timeline import tagged  # noqa: E402

FIGURE = 'print(\'FIGURE {"name": "took", "value": 0.5, "unit": "s"}\')\n'
# A job of its own session, whose environment a bed has cleared of our variables.
STRAY = "import subprocess, sys\nsubprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL)\n"


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def results(self, programs, limit=5, total=100):
        """What came of these checks, by name; their results.json and failures.txt."""
        for name, text in programs.items():
            (self.folder / f"{name}_check.py").write_text(text, encoding="utf-8")
        checks = tuple(Check(name, "", limit) for name in programs)
        (self.folder / "out").mkdir()
        with mock.patch.multiple(gpu_check, FOLDER=self.folder, CHECKS=checks), mock.patch.object(Run, "say"):
            run = Run(types.SimpleNamespace(only=None, limit=total), "gpu", dict(os.environ))
            run.run()
            run.write(self.folder / "out", {"cpus": 2})
        written = json.loads((self.folder / "out" / "results.json").read_text(encoding="utf-8"))
        failures = (self.folder / "out" / "failures.txt").read_text(encoding="utf-8")
        return {check["name"]: check for check in written["checks"]}, written, failures

    def test_none_stops_the_next(self):
        checks, written, failures = self.results({
            "good": FIGURE, "bad": "print('why')\nraise SystemExit(1)", "killed": "import os\nos.kill(os.getpid(), 9)",
            "late": "print(\"test_gpu ... skipped 'there is no GPU'\")"})
        self.assertEqual(["passed", "failed", "failed", "passed"], [check["status"] for check in checks.values()])
        self.assertEqual((2, 2), (written["passed"], written["failed"]))
        self.assertEqual({"took": {"value": 0.5, "unit": "s"}}, checks["good"]["figures"])
        self.assertEqual(["there is no GPU"], checks["late"]["skipped"])
        self.assertEqual(["bad", "killed"], re.findall(r"^==== (\w+)$", failures, re.MULTILINE))
        self.assertIn("why\n", failures)

    def test_one_that_hangs_is_ended_with_all_that_it_started(self):
        checks, _, failures = self.results({"stuck": STRAY + "print('began', flush=True)\nsys.stdin.read()\n" +
                                            "import signal\nsignal.pause()", "next": FIGURE}, limit=1)
        self.assertEqual(["failed", "passed"], [check["status"] for check in checks.values()])
        self.assertRegex(failures, r"began\n+it was ended after 1 s, its limit\n")
        self.assertEqual({}, tagged(f"{os.getpid()}.stuck", gpu_check.TAG))

    def test_when_the_time_is_over_the_rest_is_not_run(self):
        checks, written, failures = self.results({"first": FIGURE, "second": FIGURE}, total=1)
        self.assertEqual({("not run", "all checks together have 1 s")},
                         {(check["status"], check["reason"]) for check in checks.values()})
        self.assertEqual((0, 0, 2, ""), (written["passed"], written["failed"], written["not_run"], failures))

    def test_what_stops_the_run_ends_the_check_and_keeps_the_results(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                (self.folder / "train_check.py").write_text(STRAY + "print('began', flush=True)\nimport signal\nsignal.pause()",
                                                            encoding="utf-8")
                program = (f"import gpu_check, pathlib, sys\ngpu_check.FOLDER = pathlib.Path({str(self.folder)!r})\n"
                           "gpu_check.prepare = lambda arguments, has_gpu: ('cpu', sys.executable, "
                           "dict(gpu_check.os.environ, DDPRUN_NCCL_HOST='/'))\ngpu_check.machine = lambda python: {}\n"
                           "sys.exit(gpu_check.main())")
                (self.folder / "out").mkdir(exist_ok=True)
                run = subprocess.Popen(
                    [sys.executable, "-c", program, "--only", "train,oom", "--out", self.folder / "out", "--limit", "100"],
                    cwd=LIB, stdout=subprocess.PIPE, text=True)
                while not tagged(f"{run.pid}.train", gpu_check.TAG):
                    self.assertIsNone(run.poll())
                run.send_signal(number)
                text, _ = run.communicate(timeout=60)
                self.assertEqual(128 + number, run.returncode, text)
                self.assertIn("0 passed, 0 failed, 2 not run\n", text)
                self.assertEqual({}, tagged(f"{run.pid}.train", gpu_check.TAG))
                written = json.loads((self.folder / "out" / "results.json").read_text(encoding="utf-8"))
                self.assertEqual([f"stopped by {signal.Signals(number).name}"] * 2,
                                 [check["reason"] for check in written["checks"]])


if __name__ == "__main__":
    unittest.main(verbosity=2)
