#!/usr/bin/env python3
"""The restart policy with real processes: pauses, crash loops, jobs without progress, bad nodes, and what the exit
status says (docs/RECOVERY.md)."""

import json
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, WORKER, BedTestCase, free_port  # noqa: E402

FAILED, FAILED_FOR_GOOD, PREEMPTED = 1, 93, 75


class RestartsTestCase(BedTestCase):
    def closed(self):
        self.bed.follower.refresh()
        return self.bed.events.find("round_closed")

    def rules(self):
        return [line["rule"] for line in self.closed()]


class CrashLoop(RestartsTestCase):
    def test_given_up_within_five_seconds(self):
        started = time.monotonic()
        report = self.bed.path("report.json")
        agent = self.bed.agent("ddprun", ["--nproc_per_node", 2, "--max_restarts", 1000, "--crash_loop", 4,
                                          "--report_file", report], ("exit=9",))
        self.assert_status(FAILED_FOR_GOOD, agent)
        self.assertLess(time.monotonic() - started, 5 * SLOW)
        self.assertEqual(["worker_failure", "backoff", "backoff", "crash_loop"], self.rules())
        for words in ("failed for good", "4 starts in a row failed in this way", "rule crash_loop", "exit status 93",
                      "restart 1 of 1000 (worker rank", "rule worker_failure)", "rule backoff)"):
            self.assertIn(words, agent.text())
        with open(report, encoding="utf-8") as source:
            how = json.load(source)
        self.assertEqual(("failed_for_good", "crash_loop", 93, 3),
                         (how["outcome"], how["rule"], how["status"], how["restart_count"]))

    def test_twin_goes_on_unless_asked_to(self):
        agent = self.bed.agent("ddprun", ["--max_restarts", 1000, "--restart_backoff", 0], ("exit=9",))
        self.bed.event("round_closed", count=12, alive=[agent])
        agent.signal(signal.SIGINT)
        self.assert_status(1, agent)
        self.assertEqual({"worker_failure"}, set(self.rules()))

    def test_kills_from_outside_are_none(self):
        agent = self.bed.agent("ddprun", ["--max_restarts", 6], ("die=SIGKILL",))
        self.assert_status(FAILED, agent)
        self.assertEqual(["worker_failure"] * 6 + ["restarts_spent"], self.rules())
        self.assertFalse([line for line in self.closed() if "pause_ms" in line])

    def test_the_budget_ends_first_as_with_torchrun(self):
        agent = self.bed.agent("ddprun", ["--max_restarts", 3, "--restart_backoff", 0], ("exit=9",))
        self.assert_status(FAILED, agent)
        self.assertEqual(["worker_failure"] * 3 + ["restarts_spent"], self.rules())

    def test_no_progress(self):
        agent = self.bed.agent("ddprun", ["--max_restarts", 1000, "--give_up_after", 2], ("exit=9",))
        self.assert_status(FAILED_FOR_GOOD, agent)
        self.assertEqual(["worker_failure", "no_progress"], self.rules())
        self.assertIn("failed without progress (--give_up_after)", agent.text())


    def test_the_same_steps_again_are_no_progress(self):
        agent = self.bed.agent("ddprun", ["--max_restarts", 6, "--give_up_after", 2, "--restart_backoff", 0],
                               ("mark=5", "exit=9"))
        self.assert_status(FAILED_FOR_GOOD, agent)
        self.assertEqual(["worker_failure", "worker_failure", "no_progress"], self.rules())

    def test_twin_with_new_steps(self):
        agent = self.bed.agent("ddprun", ["--max_restarts", 6, "--give_up_after", 2, "--restart_backoff", 0],
                               ("mark=5+", "exit=9"))
        self.assert_status(FAILED, agent)
        self.assertEqual(["worker_failure"] * 6 + ["restarts_spent"], self.rules())


class Backoff(RestartsTestCase):
    def pauses(self, *options):
        """For each restart: the pause that was decided, and what passed until the next generation, in ms.

        From when the node was empty, which is before the decision: that is noted when the journal has it.
        """
        self.assert_status(FAILED, self.bed.agent("ddprun", ["--max_restarts", 3, *options], ("exit=9",)))
        closed = self.closed()[:-1]
        empty = self.bed.events.find("group_empty")
        formed = self.bed.events.find("generation")[1:]
        return [(int(line.get("pause_ms", 0)), (then["t"] - before["t"]) * 1e3)
                for line, before, then in zip(closed, empty, formed)]

    def test_the_first_restart_is_at_once_and_the_next_ones_wait_longer(self):
        decided, passed = zip(*self.pauses())
        self.assertEqual(0, decided[0])
        self.assertLess(passed[0], 50 * SLOW)
        self.assertTrue(250 <= decided[1] <= 500 <= decided[2] <= 1000, decided)
        for least, really in zip(decided, passed):
            self.assertGreaterEqual(really, least - 1)

    def test_twin_without_pauses(self):
        decided, passed = zip(*self.pauses("--restart_backoff", 0))
        self.assertEqual((0, 0, 0), decided)
        self.assertLess(max(passed), 50 * SLOW)


class Quarantine(RestartsTestCase):
    """Workers of the node whose agent has BAD in its environment fail, as soon as all nodes are there."""

    def start(self, *options):
        gate = self.bed.path("gate")
        os.mkfifo(gate)
        script = self.bed.write("train.sh", f"[ -z \"$BAD\" ] || {{ [ ! -p {gate} ] || cat {gate}; exit 9; }}\n"
                                            f"exec {sys.executable} {WORKER} {self.bed.journal.path} wait\n")
        self.port = free_port()
        common = ["--nnodes", 2, "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--rdzv_id", "job", "--event_log",
                  self.bed.events.path, "--crash_loop", 0, "--restart_backoff", 0, *options]
        agents = []
        for name, hosts, env in (("host", 1, {}), ("bad", 0, {"BAD": "1"}), ("spare", 0, {})):
            # One after the other, so that the third is the spare; the host first, because it has the service.
            agents.append(self.bed.run(name, [*common, "--rdzv_conf", f"is_host={hosts}", "--no_python", "sh", script],
                                       env=env))
            self.bed.event("node_joined", count=len(agents), alive=agents)
        opened = os.open(gate, os.O_RDWR)
        os.unlink(gate)
        os.close(opened)
        return agents

    def test_a_bad_node_is_left_out_for_a_spare(self):
        agents = self.start("--max_restarts", 1000, "--quarantine_after", 3)
        host, bad, spare = agents
        left_out = self.bed.event("node_left_out", alive=agents)
        node = left_out["node"]
        self.assertTrue(node.endswith(f"#{bad.pid}"), node)
        workers = self.bed.wait(lambda: (lines := [line for line in self.bed.journal.find("worker")
                                                   if line["generation"] == self.newest()]) and len(lines) == 2 and lines,
                                "the workers of the newest generation", alive=agents)
        # At least three; more when the spare was late. The others are spared from then on.
        began = [line["t"] for line in self.closed() if line.get("began_on") == node]
        self.assertGreaterEqual(len(began), 3)
        self.assertLessEqual(max(began), left_out["t"])
        # What its console says when it lasts.
        self.bed.wait(lambda: [line for line in self.bed.events.find("standby", who=f"agent:{node}")
                               if "left out (rule quarantine): 3 failures began here" in line["reason"]],
                      "its standby", alive=agents)
        status = self.bed.start_process("status", [DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}"],
                                        output=self.bed.path("status.out"), env=self.bed.environment)
        self.assert_status(0, status)
        self.assertRegex(status.text(), rf"#{bad.pid} +quarantined")
        self.bed.finish(workers)
        for agent in (host, bad, spare):
            self.assert_status(0, agent)

    def newest(self):
        return max((int(line["generation"]) for line in self.bed.events.find("generation")), default=0)

    def test_twin_without_quarantine(self):
        agents = self.start("--max_restarts", 5, "--quarantine_after", 0)
        for agent in agents:
            self.assert_status(FAILED, agent)
        self.assertEqual([], self.bed.events.find("node_left_out"))
        self.assertEqual(1, len({line["began_on"] for line in self.closed()}))


class ExitStatuses(RestartsTestCase):
    """The table of docs/SIGNALS.md, as every node of a job has it."""

    def two(self, options, worker):
        port = free_port()
        common = ["--nnodes", 2, "--rdzv_endpoint", f"127.0.0.1:{port}", "--rdzv_id", "job", *options]
        return [self.bed.agent(f"agent{hosts}", [*common, "--rdzv_conf", f"is_host={hosts}"], worker) for hosts in (1, 0)]

    def statuses(self, agents):
        return [agent.wait(20 * SLOW) for agent in agents]

    def test_on_every_node(self):
        for options, worker, status in (([], ("exit=0",), 0),
                                        ([], ("exit=9",), FAILED),
                                        (["--exit_code", "worker"], ("exit=9",), 9),
                                        (["--max_restarts", 9, "--crash_loop", 1], ("exit=9",), FAILED_FOR_GOOD),
                                        (["--max_restarts", 9, "--crash_loop", 1, "--exit_code", "worker"], ("exit=9",),
                                         FAILED_FOR_GOOD)):
            with self.subTest(options=options, worker=worker):
                self.assertEqual([status, status], self.statuses(self.two(options, worker)))

    def test_preempted(self):
        agents = self.two(["--preempt_signals", "SIGUSR1", "--grace", "100ms"], ("wait",))
        self.bed.workers(1, 2, alive=agents)
        agents[1].signal(signal.SIGUSR1)
        self.assertEqual([PREEMPTED, PREEMPTED], self.statuses(agents))
        self.assertIn("the job was preempted, start it again", agents[0].text())
        self.assertEqual("preempted", self.bed.event("verdict")["outcome"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
