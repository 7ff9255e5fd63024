#!/usr/bin/env python3
"""`ddprun events` (docs/EVENTS.md): what happened to a job, as the service's event log has it."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, BedTestCase, free_port, read_until  # noqa: E402

# Events about the service rather than a job.
ABOUT_THE_SERVICE = {"service_listening", "status_page"}


class EventsTestCase(BedTestCase):
    def start_job(self, *options):
        """An agent with two workers that wait, and the service."""
        self.port = free_port()
        agent = self.bed.agent("agent", ["--nnodes", 1, "--nproc_per_node", 2, "--rdzv_backend", "c10d", "--rdzv_id", "job7",
                                         "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--max_restarts", 2, *options])
        self.agents = [agent]
        return agent

    def command(self, *options):
        return [DDPRUN, "events", "--rdzv_endpoint", f"127.0.0.1:{self.port}", *map(str, options)]

    def events(self, *options):
        result = subprocess.run(self.command(*options), env=self.bed.environment, capture_output=True, text=True, check=False,
                                timeout=60 * SLOW)
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        return result.stdout

    def fail_one(self):
        workers = self.bed.workers(1, 2, alive=self.agents)
        self.bed.event("started", generation="1", alive=self.agents)
        self.bed.signal_workers(workers[:1], signal.SIGKILL)
        self.bed.workers(2, 2, alive=self.agents)
        self.bed.event("started", generation="2", alive=self.agents)

    def logged(self):
        self.bed.follower.refresh()
        return [line for line in self.bed.events.lines
                if line.get("who") == "service" and line["event"] not in ABOUT_THE_SERVICE]


def told(lines):
    """Events without their times and numbers."""
    return [{name: value for name, value in line.items() if name not in ("t", "wall", "pid", "number")} for line in lines]


class Events(EventsTestCase):
    def test_they_are_those_of_the_event_log_numbered(self):
        self.start_job()
        self.fail_one()
        shown = [json.loads(line) for line in self.events("--json").splitlines()]
        self.assertEqual(list(range(1, len(shown) + 1)), [line["number"] for line in shown])
        logged = self.logged()
        self.assertEqual(told(logged), told(shown))
        for one, other in zip(logged, shown):
            self.assertAlmostEqual(one["t"], other["t"], delta=1e-3)
            self.assertAlmostEqual(one["wall"], other["wall"], delta=0.1 * SLOW)
        names = [line["event"] for line in shown]
        self.assertEqual(["node_joined", "generation", "started", "round_closing", "round_closed", "generation", "started"],
                         names)
        self.assertIn("was killed by SIGKILL", shown[3]["reason"])
        since = [json.loads(line) for line in self.events("--json", "--since", 5).splitlines()]
        self.assertEqual(shown[5:], since)

    def test_people_read_lines(self):
        self.start_job()
        self.fail_one()
        lines = self.events().splitlines()
        self.assertRegex(lines[1], r'^ +2  \d\d:\d\d:\d\d\.\d\d\d  generation +generation=1  world=2 .* reason="1 node came')
        self.assertRegex(lines[3], r'^ +4  \S+  round_closing .* reason="worker rank 0 on \S+ was killed by SIGKILL"  trigger=')

    def test_a_follower_sees_what_comes_until_the_verdict(self):
        agent = self.start_job()
        workers = self.bed.workers(1, 2, alive=self.agents)
        follower = self.bed.start_process("events", self.command("-f", "--json", "--rdzv_id", "job7"),
                                          output=self.bed.path("events.out"))
        self.bed.wait(lambda: '"generation"' in follower.text(), "the generation", alive=[follower])
        self.bed.finish(workers)
        self.assert_status(0, agent)
        self.assert_status(0, follower)
        lines = [json.loads(line) for line in follower.text().splitlines()]
        verdict = next(line for line in lines if line["event"] == "verdict")
        self.assertEqual("succeeded", verdict["outcome"])
        # The service may be gone before the sum of it all (docs/GOODPUT.md) is sent.
        self.assertEqual(told(self.logged())[:len(lines)], told(lines))

    def test_a_follower_goes_on_when_the_service_is_started_again(self):
        agent = self.start_job()
        workers = self.bed.workers(1, 2, alive=self.agents)
        followers = [self.bed.start_process(name, self.command("-f", "--json", "--rdzv_id", "job7"),
                                            output=self.bed.path(f"{name}.out")) for name in ("first", "second")]
        for follower in followers:
            self.bed.wait(lambda follower=follower: '"started"' in follower.text(), "the generation", alive=[follower])
        followers[1].signal(signal.SIGINT)  # negative control: it isn't there to see the rest
        os.kill(self.bed.event("service_started")["service_pid"], signal.SIGKILL)
        self.bed.wait(lambda: '"recovered"' in followers[0].text(), "the new service's events", alive=[followers[0], agent])
        self.bed.finish(workers)
        self.assert_status(0, agent)
        self.assert_status(0, followers[0])
        names = [json.loads(line)["event"] for line in followers[0].text().splitlines()]
        self.assertEqual((1, 1), (names.count("generation"), names.count("verdict")), names)
        self.assertNotIn('"verdict"', followers[1].text())

    def test_a_reader_that_stands_still_holds_up_nobody(self):
        agent = self.start_job()
        self.bed.workers(1, 2, alive=self.agents)
        readers = [self.bed.start_process(f"events-{i}", self.command("-f"), stdout=subprocess.PIPE) for i in range(3)]
        for reader in readers:
            read_until(reader.stdout, b"started", PATIENCE)
        for reader in readers:
            reader.signal(signal.SIGSTOP)
        self.fail_one()
        self.bed.finish(self.bed.workers(2, 2, alive=self.agents))
        self.assert_status(0, agent)

    def test_clear_errors(self):
        self.port = free_port()
        result = subprocess.run(self.command(), capture_output=True, text=True, check=False, timeout=60 * SLOW)
        self.assertEqual(1, result.returncode)
        self.assertIn(f"cannot reach the rendezvous service at 127.0.0.1:{self.port}", result.stderr)
        self.start_job()
        self.bed.workers(1, 2, alive=self.agents)
        result = subprocess.run(self.command("--rdzv_id", "other"), capture_output=True, text=True, check=False,
                                timeout=60 * SLOW)
        self.assertEqual(1, result.returncode)
        self.assertIn("no job with the run id 'other' is here; this service holds 1: 'job7'", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
