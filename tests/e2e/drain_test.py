#!/usr/bin/env python3
"""`ddprun drain` (R15, docs/SIGNALS.md#drain): a node leaves in an orderly way, no step is lost, and it stays away."""

import os
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW  # noqa: E402
from preempt_test import BOUND, PREEMPTED, PreemptTestCase  # noqa: E402


class DrainTestCase(PreemptTestCase):
    def drain(self, *arguments, status=0):
        result = subprocess.run([DDPRUN, "drain", *map(str, arguments), "--rdzv_endpoint", f"127.0.0.1:{self.endpoint}"],
                                env=self.bed.environment, capture_output=True, text=True, check=False, timeout=60 * SLOW)
        self.assertEqual(status, result.returncode, result.stderr)
        return result.stderr

    def group_rank(self, agent):
        return self.bed.event("assignment", who=f"agent:{self.node(agent)}")["group_rank"]

    def node(self, agent):
        return f"{socket.gethostname()}#{agent.pid}"

    def assert_drained(self, agent, why):
        self.assert_status(PREEMPTED, agent, BOUND)
        self.assertIn(f"this node has left the job, which goes on without it or waits for another: {why}; exit status 75",
                      agent.text())


class Drain(DrainTestCase):
    def test_the_others_go_on_from_the_step_at_which_all_saved_and_the_machine_stays_away(self):
        host, other = self.two("1:2", preempts=())
        self.wait_for_step(20, (host, other))
        text = self.drain(self.node(other), "--reason", "disk is failing")
        self.assertIn("leaves; 1 node is left", text)
        self.assertIn("has left: drained: disk is failing", text)
        self.assert_drained(other, "drained: disk is failing")
        step = self.stop_step(generation=1)
        self.assertEqual([], self.lines("got"))
        self.wait_for_step(step + 5, [host], ranks=2, generation=2)
        self.assertEqual([step, step], [line["step"] for line in self.lines("begin", generation=2)])
        self.assertEqual({0}, {line["restart_count"] for line in self.lines("worker", generation=2)})
        # A supervisor of that machine starts it again at once: it isn't taken, until somebody says so.
        again = self.another("again")
        self.assert_status(1, again, BOUND)
        self.assertIn(f"was drained (disk is failing), so this machine may not join. To let it in again: ddprun drain --undo "
                      f"'{self.node(other)}'", again.text())
        self.assertIn("may join again", self.drain("--undo", self.node(other)))
        back = self.another("back")
        self.wait_for_step(step + 500, (host, back), generation=3)
        self.assertEqual({0}, {line["restart_count"] for line in self.lines("worker", generation=3)})

    def test_twin_a_script_that_asks_for_no_step_gets_term_and_its_grace(self):
        host, other = self.two("1:2", preempts=(), plans=["deaf", "term=1.5"])
        self.wait_for_step(20, (host, other))
        self.drain(self.group_rank(other), "--reason", "disk")
        self.assert_drained(other, "drained: disk")
        self.assertEqual(4, len(self.lines("saved-late")))
        self.assertEqual([], self.lines("stopped"))
        self.bed.event("generation", generation="2", alive=[host])

    def test_a_job_of_a_fixed_size_waits_for_another_node(self):
        host, other = self.two("2", preempts=())
        self.wait_for_step(20, (host, other))
        self.assertIn("the job waits up to 600 s for a replacement", self.drain(self.node(other)))
        self.assert_drained(other, "drained")
        step = self.stop_step()
        self.bed.event("round_closed", alive=[host])
        self.assertEqual([], self.bed.events.find("verdict"))
        self.drain(self.node(other), "--undo")
        back = self.another("back")
        self.wait_for_step(step + 5, (host, back), generation=2)
        self.assertEqual([step] * 4, [line["step"] for line in self.lines("begin", generation=2)])

    def test_what_it_refuses(self):
        host, other = self.two("1:2", preempts=())
        self.wait_for_step(20, (host, other))
        for node, why in ((self.group_rank(host), "has the rendezvous service, without which the job can't go on"),
                          (7, "no node of the job has the id, host name or group rank '7'; its nodes: "),
                          (socket.gethostname(), "has 2 nodes of this job; name one of them: ")):
            with self.subTest(node=node):
                self.assertIn(why, self.drain(node, status=1))
        self.assertIn("no machine with the node id or host name", self.drain("--undo", self.node(other), status=1))
        self.assertEqual([], self.bed.events.find("drain"))
        self.wait_for_step(100, (host, other))

    def test_with_a_token_it_needs_the_token(self):
        with self.bed.as_another_user():
            host, other = self.two("1:2", "--token", "geheim", preempts=())
        self.wait_for_step(20, (host, other))
        self.assertIn("wrong or missing token", self.drain(self.node(other), status=1))
        self.assertIn("leaves", self.drain(self.node(other), "--token", "geheim", "--no-wait"))
        self.assert_drained(other, "drained")
        self.wait_for_step(self.stop_step(generation=1) + 5, [host], ranks=2, generation=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
