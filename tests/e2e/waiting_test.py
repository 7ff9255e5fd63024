#!/usr/bin/env python3
"""Nodes that wait for others: alone at a loopback address, and done before the others."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, WORKER, BedTestCase, free_port, read_until  # noqa: E402


class Waiting(BedTestCase):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def node(self, rank, *options, **how):
        return self.bed.run(f"node{rank}", ["--nnodes", 2, "--node_rank", rank, "--master_port", self.port, *options,
                                            "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, "wait"],
                            stdin=subprocess.DEVNULL, **how)

    def test_alone_at_a_loopback_address(self):
        host = self.node(0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = read_until(host.stdout, b"can reach", 5 * SLOW)
        self.assertEqual(1, text.count(f"127.0.0.1:{self.port} is this machine's loopback".encode()), text)

    def test_exit_barrier(self):
        """A node that is done goes when its time is over; the job ends well without it."""
        report = self.bed.path("report.json")
        host = self.node(0, "--exit_barrier_timeout", 0.1)
        other = self.node(1, "--exit_barrier_timeout", 0.1, "--report_file", report)
        workers = self.bed.workers(1, 2, alive=[host, other])
        self.bed.finish(workers[1:])
        self.assert_status(0, other)
        with open(report, encoding="utf-8") as source:
            self.assertEqual("left", json.load(source)["outcome"])
        self.assertIn("--exit_barrier_timeout 100ms", other.text())
        self.bed.event("node_left", why="done, its exit barrier timeout is over")
        self.bed.finish(workers[:1])
        self.assert_status(0, host)

    def test_without_it_the_node_waits(self):
        host = self.node(0)
        other = self.node(1)
        workers = self.bed.workers(1, 2, alive=[host, other])
        self.bed.finish(workers[1:])
        self.bed.event("group_empty", who=f"agent:{os.uname().nodename}/1")
        self.bed.finish(workers[:1])
        self.assert_status(0, other)
        self.assert_status(0, host)
        self.assertFalse(self.bed.events.find("node_left"))

    def pair(self, nnodes):
        """Two nodes of one command; the first has the service."""
        words = ["--nnodes", nnodes, "--rdzv_id", "S", "--rdzv_endpoint", f"127.0.0.1:{self.port}",
                 "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, "wait"]
        host = self.bed.run("host", words)
        workers = self.bed.workers(1, 1, alive=[host]) if nnodes == "1:1" else None
        return host, self.bed.run("other", ["--rdzv_conf", "is_host=0", *words]), workers

    def test_a_spare_says_that_it_ran_nothing(self):
        """The spare's status is 0: without the line, a second launch of the same command would look as if it had trained."""
        host, spare, workers = self.pair("1:1")
        self.bed.event("standby", spare="true", alive=[host, spare])
        self.bed.finish(workers)
        self.assert_status(0, host)
        self.assert_status(0, spare)
        said = "the job succeeded without this node, which was a spare and ran no worker"
        self.assertIn(said, spare.text())
        self.assertNotIn(said, host.text())

    def test_the_last_word_of_a_node_that_leaves(self):
        host, other, _ = self.pair("1:2")
        self.bed.workers(1, 2, alive=[host, other])
        other.signal(signal.SIGTERM)
        self.assert_status(1, other)
        self.assertTrue(other.text().endswith("ddprun: this node has left the job on SIGTERM; exit status 1\n"), other.text())
        self.bed.finish(self.bed.next_workers(1, 1, 1, alive=[host]))
        self.assert_status(0, host)

    def test_a_service_that_comes_is_said(self):
        waiter = self.node(1)
        self.bed.wait(lambda: "can't reach the rendezvous service" in waiter.text(), "the warning", alive=[waiter])
        host = self.node(0)
        self.bed.finish(self.bed.workers(1, 2, alive=[host, waiter]))
        self.assert_status(0, waiter)
        self.assert_status(0, host)
        self.assertRegex(waiter.text(), r"the rendezvous service at \S+ answers now, after \d+s\n")
        self.assertNotIn("answers now", host.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
