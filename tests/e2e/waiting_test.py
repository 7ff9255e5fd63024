#!/usr/bin/env python3
"""Nodes that wait for others: alone at a loopback address, and done before the others."""

import json
import os
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
