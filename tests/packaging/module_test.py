#!/usr/bin/env python3
"""The Python module ddprun: error files, progress marks and stop steps, beside what PyTorch's own @record writes."""

import json
import os
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, TORCH_PYTHON, BedTestCase, torch_is_there  # noqa: E402

RAISES = """
def work():
    raise ValueError("bad batch 7")
def main():
    work()
main = record(main)
main()
"""
STEPS = """
import itertools, json, sys, time
import ddprun
for step in itertools.count(1):
    stop = ddprun.stop_at(step)
    if step == 1 or stop:
        with open(sys.argv[1], "a") as journal:
            journal.write(json.dumps({"t": time.monotonic(), "event": "stops" if stop else "begins", "step": step}) + chr(10))
    if stop:
        sys.exit(0)
"""


class ModuleCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.bed.environment["PYTHONPATH"] = os.path.join(ROOT, "python")

    def error_file(self, python, script):
        path = self.bed.path("error.json")
        if os.path.exists(path):
            os.unlink(path)
        environment = {**self.bed.environment, "TORCHELASTIC_ERROR_FILE": path}
        result = subprocess.run([python, self.bed.write("raises.py", script)], env=environment, capture_output=True,
                                text=True, check=False)
        self.assertEqual(1, result.returncode, result.stderr)
        with open(path, encoding="utf-8") as source:
            return json.load(source)


class Report(ModuleCase):
    def test_stores_where_the_docs_say(self):
        """Without an agent: a page of our own, in a file."""
        page = self.bed.write("page", "")
        with open(page, "wb") as sink:
            sink.write(b"DDPRUNPG" + struct.pack("Q", 1) + bytes(4080))
        script = "import ddprun\nddprun.report(loss=0.25)\nddprun.report(samples_per_second=4000)\nddprun.report(loss=0)\n"
        for environment in ({"DDPRUN_PROGRESS": page}, {}):  # the latter does nothing, and fails at nothing
            subprocess.run([sys.executable, "-c", script], env={**self.bed.environment, **environment}, check=True)
        with open(page, "rb") as source:
            self.assertEqual((0.0, 4000.0, 3), struct.unpack_from("ddQ", source.read(), 448))


class Record(ModuleCase):
    def test_report_has_the_stack_and_advice(self):
        report = self.bed.path("report.json")
        script = self.bed.write("train.py", "import ddprun\n@ddprun.record\ndef main():\n    import flash_attn_of_nobody\n"
                                "main()\n")
        agent = self.bed.run("ddprun", ["--report_file", report, script])
        self.assert_status(1, agent, 10 * SLOW)
        with open(report, encoding="utf-8") as source:
            cause = json.load(source)["root_causes"][0]
        self.assertEqual("ModuleNotFoundError: No module named 'flash_attn_of_nobody'", cause["message"])
        self.assertIn("in main", cause["traceback"])
        self.assertEqual("missing_module", cause["advice"]["rule"])

    def test_without_it_there_is_no_stack(self):
        """Negative control. The advice is there by the end of stderr."""
        report = self.bed.path("report.json")
        script = self.bed.write("train.py", "def main():\n    import flash_attn_of_nobody\nmain()\n")
        self.assert_status(1, self.bed.run("ddprun", ["--report_file", report, script]), 10 * SLOW)
        with open(report, encoding="utf-8") as source:
            cause = json.load(source)["root_causes"][0]
        self.assertEqual(("", ""), (cause["message"], cause["traceback"]))
        self.assertEqual("missing_module", cause["advice"]["rule"])

    def test_the_first_error_stays(self):
        script = "from ddprun import record\nfrom ddprun.errors import write_error_file\nwrite_error_file(OSError('first'))\n"
        self.assertEqual("OSError: first", self.error_file(sys.executable, script + RAISES)["message"]["message"])

    @unittest.skipUnless(torch_is_there(), f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
    def test_the_same_form_as_pytorchs(self):
        ours = self.error_file(sys.executable, "from ddprun import record\n" + RAISES)
        theirs = self.error_file(TORCH_PYTHON, "from torch.distributed.elastic.multiprocessing.errors import record\n" + RAISES)
        self.assertEqual(theirs.keys(), ours.keys())
        self.assertEqual(theirs["message"].keys(), ours["message"].keys())
        self.assertEqual(theirs["message"]["message"], ours["message"]["message"])
        for file in (ours, theirs):
            self.assertIn("in work\n", file["message"]["extraInfo"]["py_callstack"])
            self.assertGreater(int(file["message"]["extraInfo"]["timestamp"]), 1_700_000_000)


class Progress(ModuleCase):
    def test_all_ranks_stop_at_the_same_step(self):
        agent = self.bed.run("ddprun", ["--standalone", "--nproc_per_node", 2, self.bed.write("steps.py", STEPS),
                                        self.bed.journal.path])
        self.bed.wait(lambda: len(self.bed.journal.find("begins")) == 2, "two ranks that mark", alive=[agent])
        agent.signal(signal.SIGTERM)
        self.assert_status(75, agent, 10 * SLOW)
        self.bed.follower.refresh()
        steps = [line["step"] for line in self.bed.journal.find("stops")]
        self.assertEqual(2, len(steps))
        self.assertEqual(steps[0], steps[1])

    def test_nothing_happens_under_other_launchers(self):
        for path in ("", "/nowhere", __file__):
            result = subprocess.run([sys.executable, "-c", "import ddprun\nddprun.mark(ddprun.Phase.TRAIN, 1)\n"
                                     "assert not ddprun.stop_at(2)\n"],
                                    env={**self.bed.environment, "DDPRUN_PROGRESS": path}, capture_output=True, text=True,
                                    check=False)
            self.assertEqual((0, ""), (result.returncode, result.stderr), path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
