#!/usr/bin/env python3
"""Survivors of a fault keep their process (docs/PROTOCOL.md, R3): workers that ask their agent for the end of their
generation go on in the next one; others are started anew, as ever."""

import glob
import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, BedTestCase  # noqa: E402

WORKER = os.path.join(os.path.dirname(DDPRUN), "..", "tests", "rejoin_worker")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class RejoinTestCase(BedTestCase):
    def start(self, *wishes, nproc=2, options=()):
        agent = self.bed.run("ddprun", ["--nproc_per_node", nproc, "--max_restarts", 3, *options, "--event_log",
                                        self.bed.events.path, "--no_python", WORKER, self.bed.journal.path, *wishes])
        return agent, self.bed.workers(1, nproc, alive=[agent])

    def ready(self, count, generation=1):
        """So many workers of the generation have asked for its end."""
        self.bed.event("worker_can_rejoin", count=count, generation=generation)

    def kill(self, line):
        os.kill(line["pid"], signal.SIGKILL)

    def end(self, agent, lines):
        self.bed.finish(lines)
        self.assert_status(0, agent)


class Survivors(RejoinTestCase):
    def test_one_keeps_its_process_and_its_rank(self):
        agent, first = self.start()
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual(first[0]["pid"], second[0]["pid"])
        self.assertNotEqual(first[1]["pid"], second[1]["pid"])
        self.assertEqual([(0, 2, 1), (1, 2, 1)], [(s["rank"], s["world"], s["restart_count"]) for s in second])
        over = self.bed.journal.find("over")
        self.assertEqual([(first[0]["pid"], 1)], [(line["pid"], line["generation"]) for line in over])
        self.assertIn("killed by SIGKILL", over[0]["why"])
        kept = self.bed.event("worker_kept", generation="2")
        self.assertEqual(("0", str(first[0]["pid"])), (kept["local_rank"], kept["worker_pid"]))
        self.assertIn(f"rank 0 (pid {first[0]['pid']}) goes on without a restart", agent.text())
        self.end(agent, second)

    def test_twin_without_the_call_both_are_started_anew(self):
        agent, first = self.start("plain")
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertFalse({line["pid"] for line in first} & {line["pid"] for line in second})
        self.end(agent, second)

    def test_again_and_again(self):
        """Each keeps its process until it is killed itself."""
        agent, lines = self.start()
        self.ready(2)
        for generation, victim in ((1, 0), (2, 1), (3, 0)):
            self.kill(lines[victim])
            following = self.bed.workers(generation + 1, 2, alive=[agent])
            self.assertEqual(lines[1 - victim]["pid"], following[1 - victim]["pid"])
            self.assertNotEqual(lines[victim]["pid"], following[victim]["pid"])
            self.ready(1, generation + 1)
            lines = following
        self.end(agent, lines)

    def test_children_of_a_survivor_live_on(self):
        agent, first = self.start("child")
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual(first[0]["child"], second[0]["child"])
        self.assertTrue(is_alive(first[0]["child"]))
        self.assertFalse(is_alive(first[1]["child"]))
        self.end(agent, second)

    def test_of_a_hang_too(self):
        agent, first = self.start(options=["--on_stopped", "restart"])
        self.ready(2)
        os.kill(first[1]["pid"], signal.SIGSTOP)
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertEqual([True, False], [a["pid"] == b["pid"] for a, b in zip(first, second)])
        self.end(agent, second)

    def test_beside_plain_workers(self):
        """Those are stopped and started anew, in the same generation."""
        agent, first = self.start("plain=1", nproc=3)
        self.ready(2)
        self.kill(first[2])
        second = self.bed.workers(2, 3, alive=[agent])
        self.assertEqual([True, False, False], [a["pid"] == b["pid"] for a, b in zip(first, second)])
        self.assertEqual(1, len(self.bed.events.find("worker_kept")))
        self.end(agent, second)

    def test_output_goes_on_where_it_went(self):
        folder = self.bed.path("logs")
        agent, first = self.start(options=["--tee", 3, "--log_dir", folder])
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.end(agent, second)
        self.assertEqual(1, len(re.findall(r"default0\]:rank 0 in generation 2$", agent.text(), re.MULTILINE)))
        files = glob.glob(os.path.join(folder, "*", "attempt_0", "0", "stdout.log"))
        self.assertEqual(1, len(files), os.listdir(folder))
        with open(files[0], encoding="utf-8") as source:
            self.assertEqual("rank 0 in generation 1\nrank 0 in generation 2\n", source.read())

    def test_who_does_not_let_go_is_started_anew(self):
        agent, first = self.start("stubborn")
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        self.assertFalse({line["pid"] for line in first} & {line["pid"] for line in second})
        late = self.bed.event("let_go_late", generation="1")
        self.assertEqual((str(first[0]["pid"]), "killed"), (late["worker_pid"], late["then"]))
        self.assertIn("has not let go of generation 1 within 5s: it is killed and started anew", agent.text())
        self.end(agent, second)


class Ends(RejoinTestCase):
    def test_a_job_that_failed_leaves_nobody(self):
        agent, first = self.start(options=["--max_restarts", 0])
        self.ready(2)
        self.kill(first[1])
        self.assert_status(1, agent)
        self.assertFalse(is_alive(first[0]["pid"]))

    def test_nor_does_one_that_is_stopped(self):
        agent, first = self.start()
        self.ready(2)
        agent.signal(signal.SIGINT)
        agent.wait(60)
        self.assertFalse(any(is_alive(line["pid"]) for line in first))

    def test_nor_does_an_agent_that_is_killed(self):
        agent, first = self.start()
        self.ready(2)
        self.kill(first[1])
        second = self.bed.workers(2, 2, alive=[agent])
        agent.signal(signal.SIGKILL)
        self.bed.wait(lambda: not any(is_alive(line["pid"]) for line in second), "the workers' end")
        self.assertEqual(first[0]["pid"], second[0]["pid"])


if __name__ == "__main__":
    unittest.main()
