#!/usr/bin/env python3
"""A node that is about to be taken away (R14, docs/SIGNALS.md#preemption): all ranks stop at one step, and none is lost.

Two agents with two workers each, which mark their steps with the lines of docs/PROGRESS.md.
"""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, Bed, BedTestCase, free_port  # noqa: E402
from stopping_worker import blocks  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "stopping_worker.py")
PREEMPTED = 75
BOUND = 10 * SLOW


class PreemptTestCase(BedTestCase):
    def two(self, nnodes, *options, plans=(), step_ms=5, steps=100000, preempts=("--preempt_signals", "SIGTERM"), other=()):
        """The agents of a job; the first has the service. `other`: options of the second alone."""
        self.endpoint, meeting = free_port(), free_port()
        common = ["--nnodes", nnodes, "--nproc_per_node", 2, "--rdzv_backend", "c10d",
                  "--rdzv_endpoint", f"127.0.0.1:{self.endpoint}", "--rdzv_id", "preempt",
                  *preempts, "--event_log", self.bed.events.path, *options]
        worker = [WORKER, self.bed.journal.path, meeting, self.bed.folder, step_ms, steps, *plans]
        self.another = lambda name: self.bed.run(name, [*common, "--rdzv_conf", "is_host=0", *worker])
        return [self.bed.run(name, [*common, "--rdzv_conf", f"is_host={host}", *more, *worker])
                for name, host, more in (("host", 1, ()), ("other", 0, other))]

    def two_until_a_nodes_time_is_over(self, **options):
        """The same where the second node's time ends soon, but not before all ranks are at work: a busy machine needs longer."""
        for seconds in (2, 10, 40):
            begun = time.monotonic()
            agents = self.two("2", other=("--preempt_after", seconds + 20, "--preempt_deadline", 20), **options)
            self.bed.wait(lambda agents=agents: len(self.lines("step", step=0)) == 4 or all(agent.ended() for agent in agents),
                          "step 0 of all ranks")
            if len(self.lines("step", step=0)) == 4 and time.monotonic() < begun + seconds:
                return agents, seconds + 20
            self.assertEqual({}, self.bed.stop())
            self.bed.close()
            self.bed = Bed()
        self.fail("no time was long enough for the workers to start")

    def wait_for_step(self, step, agents, ranks=4, generation=1):
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=step, generation=generation)) == ranks,
                      f"step {step} of {ranks} ranks", alive=agents)

    def lines(self, event, **fields):
        self.bed.follower.refresh()
        return self.bed.journal.find(event, **fields)

    def stop_step(self, ranks=4, **fields):
        """The one step at which all stopped, having taken all steps before it and none after."""
        stopped = self.lines("stopped", **fields)
        self.assertEqual(list(range(ranks)), sorted(line["rank"] for line in stopped))
        self.assertEqual(1, len({line["step"] for line in stopped}), stopped)
        step = stopped[0]["step"]
        for rank in range(ranks):
            taken = [line["step"] for line in self.lines("step", rank=rank, **fields)]
            self.assertEqual(list(range(taken[0], step)), taken, f"rank {rank}")
        return step

    def assert_preempted(self, *agents):
        for agent in agents:
            self.assert_status(PREEMPTED, agent, BOUND)


class FixedJob(PreemptTestCase):
    def assert_resumes(self, step):
        """Another run takes up where the first one stopped."""
        agents = self.two("2", steps=step + 5)
        for agent in agents:
            self.assert_status(0, agent)
        begun = [line["step"] for line in self.lines("begin")][4:]
        self.assertEqual([step] * 4, begun)

    def check_preempting(self, number):
        agents = self.two("2")
        self.wait_for_step(20, agents)
        agents[number].signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        step = self.stop_step()
        self.assertEqual([], self.lines("got"))
        committed = self.bed.event("stop_committed", who="service")
        self.assertEqual(str(step), committed["step"])
        self.assertEqual("preempted", self.bed.event("verdict")["outcome"])
        self.assertIn(f"save and end at step {step}", agents[1 - number].text())
        self.assert_resumes(step)

    def test_all_ranks_stop_at_one_step_and_the_next_run_takes_up_there(self):
        self.check_preempting(1)

    def test_the_node_of_the_service_is_no_exception(self):
        self.check_preempting(0)

    def test_term_at_all_nodes_is_one_agreement(self):
        agents = self.two("2")
        self.wait_for_step(20, agents)
        for agent in agents:
            agent.signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        self.stop_step()
        self.assertEqual(1, len(self.bed.events.find("stop_committed", who="service")))

    def test_a_second_term_does_not_wait_for_the_step(self):
        agents = self.two("2", "--grace", 6, step_ms=60000)
        self.wait_for_step(0, agents)
        agents[1].signal(signal.SIGTERM)
        self.bed.event("stop_committed", count=3, alive=agents)  # the service and both agents
        # For a quarter of a second it is the same one, as timeout(1) sends it to a process and to its group.
        sent, action = 1, ""
        while action != "ends":
            agents[1].signal(signal.SIGTERM)
            sent += 1
            action = self.bed.event("signal", count=sent, alive=agents)["action"]
        self.assert_preempted(*agents)
        self.assertEqual(4, len(self.lines("got", signal=signal.SIGTERM)))

    def test_a_deadline_that_is_shorter_than_the_save(self):
        agents = self.two("2", "--preempt_deadline", 4, plans=["save=600"])
        self.wait_for_step(20, agents)
        agents[1].signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        self.stop_step()
        self.assertEqual(4, len(self.lines("got", signal=signal.SIGTERM)))
        self.assertEqual([], self.lines("saved"))

    def test_a_save_that_fails_does_not_disturb_the_others(self):
        agents = self.two("2", plans=["save=1", "fail-saving=3"])
        self.wait_for_step(20, agents)
        agents[1].signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        self.assertEqual([0, 1, 2], sorted(line["rank"] for line in self.lines("saved")))

    def test_twin_a_script_that_knows_nothing_sees_a_plain_sigterm(self):
        agents = self.two("2", plans=["deaf", "term=1.5"])
        self.wait_for_step(20, agents)
        agents[1].signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        self.assertEqual(4, len(self.lines("saved-late")), "the grace it was promised")
        self.assertIn("docs/PROGRESS.md", self.bed.event("stop_given_up")["why"])
        self.assertEqual([], self.lines("stopped"))
        self.assertEqual(4, len(self.lines("got", signal=signal.SIGTERM)))

    def test_a_script_that_knows_nothing_has_the_grace_and_no_longer(self):
        agents = self.two("2", "--grace", 1, plans=["deaf", "term=600"])
        self.wait_for_step(20, agents)
        agents[1].signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        self.assertEqual(4, len(self.lines("got", signal=signal.SIGTERM)))
        self.assertEqual([], self.lines("saved-late"))

    def test_term_during_a_restart_leaves_the_workers_their_grace_and_then_takes_the_node(self):
        agents = self.two("2", "--max_restarts", 3, plans=["term=1.5"], step_ms=60000)
        self.wait_for_step(0, agents)
        self.bed.signal_workers(self.lines("worker", rank=0), signal.SIGKILL)
        self.bed.event("stop_begin", count=2, alive=agents)
        agents[1].signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        self.assertEqual(3, len(self.lines("saved-late")))
        self.assertEqual([], self.bed.events.find("preempt"))
        self.assertEqual([], self.lines("worker", generation=2))


class WhatPreempts(PreemptTestCase):
    def test_a_plain_term_where_all_workers_ask(self):
        agents = self.two("2", preempts=())
        self.wait_for_step(20, agents)
        agents[1].signal(signal.SIGTERM)
        self.assert_preempted(*agents)
        self.stop_step()
        self.assertEqual([], self.lines("got"))

    def test_twin_unless_the_option_says_otherwise(self):
        # Workers that end at once reset their peers' connections; a peer may die of that before its own TERM.
        agents = self.two("2", preempts=("--preempt_signals", "none"), plans=["term=1.5"])
        self.wait_for_step(20, agents)
        agents[0].signal(signal.SIGTERM)
        for agent in agents:
            self.assert_status(1, agent, BOUND)
        self.assertEqual([], self.lines("stopped"))
        self.assertEqual(1, len(self.lines("got", signal=signal.SIGTERM, rank=0)))

    def test_twin_a_plain_term_ends_workers_that_do_not_ask(self):
        agents = self.two("2", preempts=(), plans=["deaf", "term=1.5"])
        self.wait_for_step(20, agents)
        agents[0].signal(signal.SIGTERM)
        for agent in agents:
            self.assert_status(1, agent, BOUND)
        self.assertEqual([], self.bed.events.find("preempt"))
        self.assertEqual(1, len(self.lines("got", signal=signal.SIGTERM, rank=0)))

    def test_the_end_of_a_nodes_time(self):
        agents, seconds = self.two_until_a_nodes_time_is_over()
        self.assert_preempted(*agents)
        self.stop_step()
        self.assertEqual([], self.lines("got"))
        self.assertIn(f"is preempted: its time is over (--preempt_after {seconds}s)", agents[0].text())
        self.assertEqual([], self.bed.events.find("signal"))

    def test_twin_without_workers_that_ask_the_end_of_a_nodes_time_is_a_plain_term(self):
        # Workers that end at once reset the others' connections, and the others may die before their TERM comes.
        agents, _ = self.two_until_a_nodes_time_is_over(plans=["deaf", "term=1.5"])
        self.assert_preempted(*agents)
        self.assertEqual(4, len(self.lines("got", signal=signal.SIGTERM)))


class ElasticJob(PreemptTestCase):
    def test_the_others_go_on_from_that_step_and_no_restart_is_charged(self):
        host, other = self.two("1:2")
        self.wait_for_step(20, (host, other))
        other.signal(signal.SIGTERM)
        self.assert_preempted(other)
        step = self.stop_step(generation=1)
        self.wait_for_step(step + 5, [host], ranks=2, generation=2)
        self.assertEqual([step, step], [line["step"] for line in self.lines("begin", generation=2)])
        self.assertEqual({0}, {line["restart_count"] for line in self.lines("worker", generation=2)})
        self.assertEqual("membership_change", self.bed.event("generation", generation="2")["rule"])
        # Alone now, and the service is here: the job ends.
        host.signal(signal.SIGTERM)
        self.assert_preempted(host)
        self.stop_step(ranks=2, generation=2)


class ScriptedPage(dict):
    """A progress page that another process changes between two looks of the worker."""

    def __init__(self, prepared, committed):
        super().__init__({8: 0, 16: 0, 24: 0, 32: 0})
        self.prepared, self.committed = iter(prepared), committed

    def __getitem__(self, index):
        if index == 16:
            self[16] = next(self.prepared, super().__getitem__(16))
        if index == 32:
            return self.committed
        return super().__getitem__(index)


class DocumentedLines(unittest.TestCase):
    """What docs/PROGRESS.md gives to scripts, in interleavings that real processes meet once in a million times."""

    def stop_at(self, step, prepared, committed):
        page = ScriptedPage(prepared, committed)
        lines = {"page": page, "TRAIN": 2}
        lines["mark"] = lambda phase, step: page.__setitem__(8, phase << 56 | step)
        documented = next(block for block in blocks() if "def stop_at" in block)
        exec(documented, lines)  # pylint: disable=exec-used
        return lines["stop_at"](step)

    def test_stops_at_the_committed_step_and_not_below(self):
        self.assertTrue(self.stop_at(9, [9], 9))
        self.assertTrue(self.stop_at(20, [9], 9), "steps need not be counted one by one")
        self.assertFalse(self.stop_at(8, [9], 9))

    def test_a_commit_of_a_later_step_does_not_stop_who_waits_at_an_earlier_one(self):
        # The worker slept between its look at what is prepared and the one at what is committed.
        self.assertFalse(self.stop_at(9, [9, 11], 11))


if __name__ == "__main__":
    unittest.main(verbosity=2)
