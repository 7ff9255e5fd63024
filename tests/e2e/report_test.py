#!/usr/bin/env python3
"""What a failed job reports to its user: the first cause over all nodes, exit statuses, restarts."""

import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, BedTestCase, free_port  # noqa: E402


class Report(BedTestCase):
    def failed(self, options, worker):
        """The output of a job that must fail."""
        agent = self.bed.agent("ddprun", options, worker=worker)
        self.assert_status(1, agent, 10 * SLOW)
        return agent

    def test_exit_code(self):
        agent = self.failed(["--nproc_per_node", 2], ("only-rank=1", "exit=3"))
        text = agent.text()
        worker = self.bed.wait(lambda: self.bed.journal.find("worker", rank=1), "the line of rank 1")[0]
        for part in ("FAILED", "Root Cause", "rank      : 1 (local_rank: 1)", f"exitcode  : 3 (pid: {worker['pid']})"):
            self.assertIn(part, text)
        # Rank 0 was stopped by us: no cause.
        self.assertNotIn("rank      : 0 (local_rank: 0)", text.split("Root Cause")[-1])

    def test_the_file_has_each_field_of_a_failure_on_the_wire(self):
        path = self.bed.path("report.json")
        self.failed(["--report_file", path], ("exit=3",))
        with open(path, encoding="utf-8") as source:
            shown = set(json.load(source)["root_causes"][0])
        with open(os.path.join(ROOT, "proto", "ddprun", "rendezvous", "v1", "failure.proto"), encoding="utf-8") as source:
            wire = set(re.findall(r"(?m)^  (?:repeated )?\w+ (\w+) = \d+;", source.read()))
        names = {"node_id": "node", "hostname": "host", "wall_time_ms": "time_ms"}
        self.assertEqual({names.get(name, name) for name in wire} | {"signal_name", "cause", "advice"}, shown)
        with open(os.path.join(ROOT, "docs", "LOGS.md"), encoding="utf-8") as source:
            section = source.read().partition("\nA failure:\n")[2].partition("\n#")[0]
        self.assertEqual(set(), shown - set(re.findall(r"`(\w+)`", section)))

    def test_signals_by_name(self):
        for name in ("SIGSEGV", "SIGKILL", "SIGABRT"):
            text = self.failed([], (f"die={name}",)).text()
            self.assertIn(name, text)

    def test_error_file(self):
        text = self.failed([], ("error-file=RuntimeError: out of cheese", "exit=1")).text()
        self.assertIn("RuntimeError: out of cheese", text)
        self.assertIn("Traceback: in train", text)

    def test_last_lines_of_stderr(self):
        text = self.failed(["--redirects", 2, "--log_dir", self.bed.path("logs")],
                           ("complain=it hurts here", "exit=5")).text()
        self.assertIn("it hurts here", text)

    def test_files_of_the_failed_worker(self):
        """The cause names the files that a person reads on in; without files nothing."""
        logs = self.bed.path("logs")
        text = self.failed(["--nproc_per_node", 2, "--tee", 3, "--log_dir", logs], ("only-rank=1", "exit=3")).text()
        paths = re.search(r"  logs      : (\S+)\s+(\S+)\n", text)
        self.assertIsNotNone(paths, text)
        for path, name in zip(paths.groups(), ("stdout", "stderr")):
            self.assertTrue(path.startswith(logs) and path.endswith(f"/attempt_0/1/{name}.log"), path)
            self.assertTrue(os.path.isfile(path), path)
        # What is read is the text of both jobs.
        self.assertEqual(1, self.failed([], ("exit=3",)).text().count("  logs      : "))

    def test_first_cause_is_shown_on_every_node(self):
        port = free_port()
        options = ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}", "--rdzv_conf"]
        first = self.bed.agent("first", [*options, "is_host=1"], worker=("only-rank=1", "exit=7"))
        second = self.bed.agent("second", [*options, "is_host=0"], worker=("only-rank=1", "exit=7"))
        for agent in (first, second):
            self.assert_status(1, agent, 10 * SLOW)
            self.assertIn("rank      : 1", agent.text().split("Root Cause")[-1])
            self.assertIn("exitcode  : 7", agent.text().split("Root Cause")[-1])

    def test_budget(self):
        """Two failures with --max_restarts 2 are forgiven, the third isn't; with 0 the first isn't."""
        self.failed(["--max_restarts", 2], ("exit=9",))
        self.assertEqual([0, 1, 2], self.restart_counts())
        self.bed.journal.lines.clear()
        self.failed(["--max_restarts", 0], ("exit=9",))
        self.assertEqual([0], self.restart_counts())

    def restart_counts(self):
        self.bed.follower.refresh()
        return [line["restart_count"] for line in self.bed.journal.find("worker")]

    def test_restart_then_success(self):
        agent = self.bed.agent("ddprun", ["--max_restarts", 1], worker=("only-first", "exit=9"))
        self.bed.finish(self.bed.workers(2, 1, alive=[agent]))
        self.assert_status(0, agent)

    def test_nothing_is_said_about_success(self):
        agent = self.bed.agent("ddprun", [], worker=("exit=0",))
        self.assert_status(0, agent)
        self.assertEqual("", agent.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
