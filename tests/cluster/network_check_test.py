#!/usr/bin/env python3
"""ddprun test names what is wrong with the network of eight hosts, and nobody where all are alike."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import network_check as check  # noqa: E402
from job import ClusterTestCase, main  # noqa: E402

HOSTS = 8


class NetworkCheck(ClusterTestCase):
    hosts = HOSTS

    def found(self, spoil):
        expected = spoil(self.cluster)
        report, statuses = check.examine(self.bed, HOSTS)
        self.assertEqual(expected, check.accusations(report))
        self.assertEqual([1 if expected else 0] * HOSTS, statuses)
        self.assertLess(report["seconds"], check.VERDICT_SECONDS)
        return report

    def test_a_healthy_network(self):
        report = self.found(check.nothing)
        self.assertEqual(HOSTS * (HOSTS - 1), len([way for way in report["ways"] if way["bit_s"]]))
        self.assertEqual([True] * HOSTS, [node["answered"] for node in report["nodes"]])

    def test_one_slow_node(self):
        self.found(check.slow_node(3))

    def test_one_lossy_way(self):
        self.found(check.lossy_way(2, 5))

    def test_one_cut_way(self):
        report = self.found(check.cut_way(7, 4))
        self.assertIn("while the other direction works", report["findings"][0]["what"])

    def test_two_bad_nodes(self):
        self.found(check.two_bad_nodes(1, 6))

    def test_all_equally_slow(self):
        self.found(check.all_slow(HOSTS))


if __name__ == "__main__":
    main()
