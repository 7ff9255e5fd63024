#!/usr/bin/env python3
"""Training scripts of people's frameworks, which know nothing of ddprun: killed three times, they go on from forks of an
interpreter, and each step's loss is what it is without kills and without forks; a rank that hangs is named.

The suite python has the kills of the script without a framework, the suite frameworks the rest.
"""

import os
import unittest

from python_bed import FRAMEWORKS, LAUNCHERS, MISSING, PATIENCE, ROOT, SLOW, PythonTestCase

STEPS, EACH = 16, 4  # saved after each fourth
KILLS = ("1@6=kill", "0@10=kill#1", "1@14=kill#2")
BOUND = 20 * 0.05 + 5  # seconds until a hang is named: ten steps of at most 0.1 s, and 5 s


class FrameworkTestCase(PythonTestCase):
    script, python = "", ""  # set by the classes below
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.bed.forget_warm()
        if not os.access(self.python, os.X_OK):
            self.skipTest(f"no {self.python}: {MISSING if self.python == LAUNCHERS else 'run scripts/test --only frameworks'}")

    def start(self, name, *plans, options=(), step_ms=0):
        """(the agent, the journal, the event log) of a job."""
        journal, events = self.bed.follower.follow(self.bed.path(name)), self.bed.follower.follow(self.bed.path(f"{name}.events"))
        script = os.path.join(ROOT, "tests", "support", self.script)
        agent = self.bed.run(name, ["--standalone", "--nproc_per_node", 2, "--max_restarts", 3, *options, "--event_log",
                                    events.path, script, journal.path, STEPS, step_ms, EACH, *plans],
                             env={"PYTHON_EXEC": self.python})
        return agent, journal, events

    def facts(self, job):
        """(the lines of its losses, {(rank, step): its losses}, whether workers were forks, by generation), at its end."""
        agent, journal, events = job
        self.assert_status(0, agent, PATIENCE)
        self.bed.follower.refresh()
        lines, losses, warm = journal.find("loss"), {}, {}
        for line in lines:
            losses.setdefault((line["rank"], line["step"]), set()).add(line["loss"])
        for line in events.find("worker_started"):
            warm.setdefault(int(line["generation"]), []).append(bool(line.get("warm")))
        return lines, losses, warm

    def start_warm(self):
        """Starts a job; its first kill comes when there is an interpreter that has imported what the workers have."""
        fifo = self.bed.path("warm.fifo")
        os.mkfifo(fifo)
        gate = os.open(fifo, os.O_RDWR)
        self.addCleanup(os.close, gate)
        job = self.start("warm", "*@3=await", *KILLS, options=("--warm", "on"))
        agent, _, events = job
        self.bed.wait(lambda: events.find("warm_ready") or events.find("warm_off"), "an interpreter", PATIENCE, [agent])
        self.assertEqual([], events.find("warm_off"))
        os.write(gate, b"11")
        return job

    def check_kills(self):
        """Three kills of a job whose workers are forks from then on, beside a cold job with one kill."""
        _, cold, starts = self.facts(self.start("cold", KILLS[0], options=("--warm", "off")))
        self.assertEqual({1: [False] * 2, 2: [False] * 2}, starts)
        lines, warm, starts = self.facts(self.start_warm())
        self.assertEqual({1: [False] * 2, 2: [True] * 2, 3: [True] * 2, 4: [True] * 2}, starts)
        self.assertEqual({0, 1, 2, 3}, {line["attempt"] for line in lines})
        self.assertGreater(len(lines), len(warm), "no step was done again")
        self.assertEqual({(rank, step) for rank in (0, 1) for step in range(1, STEPS + 1)}, set(warm))
        # One loss for each step of each rank, however often it was done; and they tell steps apart.
        self.assertEqual(cold, warm)
        self.assertEqual({1}, {len(losses) for losses in warm.values()})
        self.assertGreater(len({loss for losses in warm.values() for loss in losses}), 0.9 * STEPS)

    def check_hang(self, plan, rank):
        agent, journal, events = self.start("hangs", f"{rank}@12={plan}", step_ms=50, options=("--hang_timeout", 8))
        begun = self.bed.wait(lambda: journal.find("plan"), "the hang", PATIENCE, [agent])[0]["t"]
        found = self.bed.wait(lambda: events.find("hang_named", who="service"), "its name", PATIENCE, [agent])[0]
        self.assertEqual(str(rank), found["ranks"])
        self.assertLess(found["t"] - begun, BOUND * SLOW)
        self.assert_status(0, agent, PATIENCE)


class NanoGpt(FrameworkTestCase):
    script, python = "unmodified_gpt.py", LAUNCHERS

    def test_three_kills(self):
        self.check_kills()

    def test_a_hang(self):
        self.check_hang("loader", 1)


class Accelerate(FrameworkTestCase):
    script, python = "unmodified_accelerate.py", LAUNCHERS

    def test_three_kills(self):
        self.check_kills()

    def test_a_hang(self):
        self.check_hang("sleep", 0)


class Lightning(FrameworkTestCase):
    script, python = "unmodified_lightning.py", LAUNCHERS

    def test_three_kills(self):
        self.check_kills()

    def test_a_hang(self):
        self.check_hang("stop", 1)


class Trainer(FrameworkTestCase):
    """Hugging Face's transformers.Trainer."""

    script, python = "unmodified_trainer.py", FRAMEWORKS

    def test_three_kills(self):
        self.check_kills()

    def test_a_hang(self):
        self.check_hang("spin", 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
