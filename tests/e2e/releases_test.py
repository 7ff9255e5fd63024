#!/usr/bin/env python3
"""Two releases in one job (docs/RELEASING.md#two-releases-in-one-job): they work together, or one line says what to install
where."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, BedTestCase, free_port  # noqa: E402
from other_release import own_release, program_of  # noqa: E402

HOST = socket.gethostname()


class ReleasesTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.own = ".".join(map(str, own_release()))

    def other(self, **above):
        return program_of(self.bed.folder, **above)

    def start(self, name, program=DDPRUN, host=False, nodes=2, **options):
        return self.bed.agent(name, ["--nnodes", nodes, "--nproc_per_node", 1, "--max_restarts", 3, "--rdzv_backend", "c10d",
                                     "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_conf", f"is_host={int(host)}",
                                     "--rdzv_id", "job7"], program=program, **options)

    def command(self, program, *words, status=0):
        result = subprocess.run([program, *map(str, words)], env=self.bed.environment, capture_output=True, text=True,
                                check=False, timeout=60 * SLOW)
        self.assertEqual(status, result.returncode, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def train_through_a_failure(self, *agents):
        """Each node has a worker; one of them is killed, and all end well in the next generation."""
        workers = self.bed.workers(1, 2, alive=agents)
        self.bed.signal_workers(workers[1:], signal.SIGKILL)
        self.bed.finish(self.bed.workers(2, 2, alive=agents))
        for agent in agents:
            self.assert_status(0, agent)

    def assert_refused(self, agent, theirs, peer, release):
        """The agent ends, with one line on it."""
        self.assert_status(1, agent)
        said = [line for line in agent.text().splitlines() if "has ddprun" in line]
        self.assertEqual(1, len(said), agent.text())
        self.assertIn(f"{HOST} has ddprun {theirs}, and {peer} has {release}: releases in one job differ by one minor release at "
                      f"most; install ddprun {release} on {HOST}, or {theirs} on all other nodes", said[0])


class InOneJob(ReleasesTestCase):
    def test_a_newer_agent_joins(self):
        newer, version = self.other(minor=1)
        self.train_through_a_failure(self.start("service", host=True), self.start("newer", newer))
        self.assertIn(f"ddprun {version}\n", self.command(newer, "--version"))

    def test_an_older_agent_joins(self):
        newer, _ = self.other(minor=1)
        self.train_through_a_failure(self.start("service", newer, host=True), self.start("older"))

    def test_two_minor_releases_apart_is_refused_and_the_job_goes_on_without(self):
        newer, version = self.other(minor=2)
        service = self.start("service", host=True)
        self.bed.event("node_joined", alive=[service])
        self.assert_refused(self.start("newer", newer), version, "the rendezvous service of this job", self.own)
        refused = self.bed.event("node_refused")
        self.assertIn(f"{HOST} has ddprun {version}", refused["why"])
        # What the line says: this release there.
        self.train_through_a_failure(service, self.start("installed"))

    def test_another_major_release_is_refused(self):
        newer, version = self.other(major=1)
        service = self.start("service", newer, host=True)
        self.bed.event("node_joined", alive=[service])
        self.assert_refused(self.start("older"), self.own, "the rendezvous service of this job", version)

    def test_any_two_nodes_must_be_near_because_each_may_have_the_service(self):
        middle, _ = self.other(minor=1)
        newest, version = self.other(minor=2)
        service = self.start("service", middle, host=True, nodes=3)
        older = self.start("older", nodes=3)
        self.bed.event("node_joined", count=2, alive=[service, older])
        newest = self.start("newest", newest, nodes=3)
        self.assert_status(1, newest)
        self.assertIn(f"{HOST} has ddprun {version}, and {HOST} has {self.own}: ", newest.text())
        self.assertNotIn("node_lost", [line["event"] for line in self.bed.events.lines])

    def test_twin_with_nobody_older(self):
        middle, _ = self.other(minor=1)
        newest, _ = self.other(minor=2)
        self.train_through_a_failure(self.start("service", middle, host=True), self.start("newest", newest))


class Commands(ReleasesTestCase):
    def test_of_any_release_show_and_control_a_job(self):
        far, _ = self.other(minor=7)
        service, other = self.start("service", host=True, nodes="1:2"), self.start("other", nodes="1:2")
        self.bed.workers(1, 2, alive=[service, other])
        at = ["--rdzv_endpoint", f"127.0.0.1:{self.port}"]
        shown = self.command(far, "status", "-o", "wide", *at)
        self.assertIn(f"ddprun rendezvous service {self.own} at ", shown)
        self.assertEqual(2, shown.count(f"release: ddprun {self.own}\n"))
        self.assertIn(" generation ", self.command(far, "events", *at))
        self.assertIn("leaves", self.command(far, "drain", f"{HOST}#{other.pid}", *at))
        self.bed.workers(2, 1, alive=[service])
        self.command(far, "stop", *at)
        self.bed.event("verdict")


class Records(ReleasesTestCase):
    """Journals of another release."""

    def start_service(self, name, program):
        self.state = self.bed.path("records")
        return self.bed.run(name, ["rendezvous", "--listen", f"127.0.0.1:{self.port}", "--state_dir", self.state,
                                   "--event_log", self.bed.events.path], program=program)

    def take_over(self, first, then):
        """A service of one release is killed, and one of another goes on with its record."""
        service = self.start_service("service", first)
        agents = [self.start("a"), self.start("b")]
        self.bed.workers(1, 2, alive=[service, *agents])
        service.signal(signal.SIGKILL)
        service.wait(20 * SLOW)
        again = self.start_service("again", then)
        self.bed.event("recovered", run_id="job7", alive=[again, *agents])
        return again, agents

    def test_of_the_release_before_and_of_the_next_one_are_read(self):
        newer, _ = self.other(minor=1)
        for first, then in ((DDPRUN, newer), (newer, DDPRUN)):
            with self.subTest(first=os.path.basename(first)):
                again, agents = self.take_over(first, then)
                self.train_through_a_failure(*agents)
                again.signal(signal.SIGTERM)
                self.assert_status(0, again)
                self.forget_job()

    def forget_job(self):
        self.port = free_port()
        os.rename(self.state, self.state + str(self.port))
        self.bed.journal.lines.clear()
        self.bed.events.lines.clear()

    def test_an_upgrade_too_far_ends_no_job_and_takes_no_new_node(self):
        far, version = self.other(minor=2)
        _, agents = self.take_over(DDPRUN, far)
        self.bed.signal_workers(self.bed.journal.find("worker")[:1], signal.SIGKILL)
        workers = self.bed.workers(2, 2, alive=agents)
        self.assert_refused(self.start("c"), self.own, "the rendezvous service of this job", version)
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)

    def test_of_a_later_format_isnt_touched(self):
        service = self.start_service("service", DDPRUN)
        agents = [self.start("a"), self.start("b")]
        self.bed.workers(1, 2, alive=[service, *agents])
        service.signal(signal.SIGKILL)
        service.wait(20 * SLOW)
        with sqlite3.connect(os.path.join(self.state, "journal.db")) as database:
            database.execute("PRAGMA user_version = 2")
        again = self.start_service("again", DDPRUN)
        self.assert_status(1, again)
        said = [line for line in again.text().splitlines() if re.search("error|warning", line)]
        self.assertEqual(1, len(said), again.text())
        self.assertIn("is of a later release (format 2, this one knows 1): upgrade ddprun here, or move it away to start the job "
                      "anew", said[0])
        with sqlite3.connect(os.path.join(self.state, "journal.db")) as database:
            self.assertEqual([("job7",)], database.execute("SELECT run_id FROM jobs").fetchall())


if __name__ == "__main__":
    unittest.main(verbosity=2)
