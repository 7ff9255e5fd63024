#!/usr/bin/env python3
"""A rendezvous service that dies: its agent starts another one at the same address."""

import os
import signal
import stat
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, BedTestCase, free_port  # noqa: E402


class ServiceTestCase(BedTestCase):
    def kill_service(self, after=0.0):
        """Kills the newest service process; returns the event of the one in its place."""
        self.bed.follower.refresh()
        started = [line for line in self.bed.events.lines if line["event"] in ("service_started", "service_restarted")]
        os.kill(started[-1]["service_pid"], signal.SIGKILL)
        return self.bed.event("service_restarted", count=len(started), after=after)


class Restarts(ServiceTestCase):
    def check_restart(self, agent):
        self.bed.workers(1, 1, alive=[agent])
        restarted = self.kill_service()
        first, second = self.bed.events.find("service_listening")[:2]
        self.assertEqual(first["port"], second["port"])
        self.assertEqual(second["pid"], restarted["service_pid"])
        self.assertEqual((1, "was killed by SIGKILL"), (restarted["times"], restarted["how"]))
        self.assertLess(restarted["ms"], 1000 * SLOW)
        said = f"the rendezvous service was killed by SIGKILL; started again after {restarted['ms']} ms"
        self.bed.wait(lambda: said in agent.text(), "what the user is told")
        return first, second

    def test_at_a_unix_socket(self):
        first, second = self.check_restart(self.bed.agent("agent", ["--standalone"]))
        self.assertEqual(first["listen"], second["listen"])

    def test_at_a_port(self):
        port = free_port()
        first, _ = self.check_restart(self.bed.agent(
            "agent", ["--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}"]))
        self.assertEqual(port, first["port"])

    def test_at_any_free_port(self):
        self.check_restart(self.bed.agent(
            "agent", ["--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0"]))

    def test_twin_whose_job_has_ended(self):
        agent = self.bed.agent("agent", ["--standalone"])
        self.bed.finish(self.bed.workers(1, 1, alive=[agent]))
        self.assert_status(0, agent)
        self.bed.follower.refresh()
        self.assertEqual([], self.bed.events.find("service_restarted"))


class StateDir(BedTestCase):
    def test_is_made(self):
        folder = self.bed.path("state/of/job")
        agent = self.bed.agent("agent", ["--standalone", "--state_dir", folder])
        self.bed.finish(self.bed.workers(1, 1, alive=[agent]))
        self.assert_status(0, agent)
        self.assertTrue(stat.S_ISDIR(os.stat(folder).st_mode))

    def test_one_that_cannot_be_is_named(self):
        for state_dir in (["--state_dir", "/dev/null/state"], ["--rdzv_conf", "state_dir=/dev/null/state"]):
            agent = self.bed.agent("agent", ["--standalone", *state_dir])
            self.assert_status(1, agent)
            self.assertIn("error: --state_dir: create directory '/dev/null/state'", agent.text())
        service = self.bed.run("service", ["rendezvous", "--listen", "127.0.0.1:0", "--state_dir", "/dev/null/state"])
        self.assert_status(1, service)
        self.assertIn("error: --state_dir: create directory '/dev/null/state'", service.text())

    def test_twin_that_does_not_host_needs_none(self):
        port = free_port()
        common = ["--nnodes", 2, "--master_addr", "127.0.0.1", "--master_port", port]
        host = self.bed.agent("host", [*common, "--node_rank", 0])
        other = self.bed.agent("other", [*common, "--node_rank", 1, "--state_dir", "/dev/null/state"])
        self.bed.finish(self.bed.workers(1, 2, alive=[host, other]))
        self.assert_status(0, host)
        self.assert_status(0, other)


if __name__ == "__main__":
    unittest.main(verbosity=2)
