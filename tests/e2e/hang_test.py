#!/usr/bin/env python3
"""Workers that hang without dying (docs/PROGRESS.md, R13): noticed by their marks, the guilty rank named, and ended after
--hang_timeout."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, SLOWNESS, BedTestCase, free_port  # noqa: E402
from timeline import TimelineError  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "marking_worker.py")
# In this many steps the agent sees the 100 that it learns from, even if it has to wait for the CPU.
LEARNED = int(200 * SLOW)
ENDED = ("--hang_timeout", "2")


class HangTestCase(BedTestCase):
    def start(self, *plans, step_ms=4, steps=400, options=(), restarts=1):
        return self.bed.run("agent", ["--standalone", "--nproc_per_node", 2, "--max_restarts", restarts, *options,
                                      "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, free_port(),
                                      step_ms, steps, *plans])

    def learned(self, agent):
        """Until the agent knows the steps of both ranks; their journal lines."""
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=LEARNED, attempt=0)) == 2, f"{LEARNED} steps",
                      alive=[agent])
        return self.bed.workers(1, 2)

    def assert_goes_on(self, agent):
        """The job restarts once and ends well."""
        self.bed.event("generation", generation="2", alive=[agent])
        self.assert_status(0, agent)

    def assert_quiet(self, name, seconds):
        """No event of that name within the time."""
        with self.assertRaises(TimelineError):
            self.bed.event(name, timeout=seconds * SLOWNESS)


class Marked(HangTestCase):
    def test_a_stopped_worker_is_named_and_the_job_restarts(self):
        agent = self.start(steps=5 * LEARNED, options=ENDED)
        workers = self.learned(agent)
        self.bed.signal_workers(workers[1:], signal.SIGSTOP)
        # The service has named it before, unless the first look that found it came after the limit.
        hang = self.bed.event("hang", who="service", alive=[agent])
        self.assertEqual("1", hang["ranks"])
        self.assertIn("stopped by a signal", hang["evidence"])
        told = self.bed.event("hang", rank="1", alive=[agent])
        self.assertEqual("T", told["state"])
        self.assertIn("no progress in train, step ", told["why"])
        suspended = self.bed.event("worker_suspended", local_rank="1")
        spawned = self.bed.event("spawn", generation=2, alive=[agent])
        # The limit of two seconds, after which the next look is due.
        self.assertLess(spawned["t"] - suspended["t"], 5 * SLOW)
        self.assertIn("restart 1 of 1 (worker rank 1 on ", agent.text())
        self.bed.signal_workers(self.bed.workers(2, 2, alive=[agent]), signal.SIGKILL)

    def test_by_default_a_suspicion_ends_nothing(self):
        """A worker that is stopped for a while, as by a debugger, is named; it goes on, and so does the job."""
        agent = self.start(steps=5 * LEARNED, restarts=0)
        workers = self.learned(agent)
        self.bed.signal_workers(workers[1:], signal.SIGSTOP)
        named = self.bed.event("hang_named", rank="1", alive=[agent])
        self.assertEqual("10m", named["limit"])
        self.assertEqual("is stopped by a signal", named["waits"].split(" (")[0])
        self.assert_quiet("hang", 3)
        self.bed.signal_workers(workers[1:], signal.SIGCONT)
        self.bed.event("hang_over", rank="1", alive=[agent])
        self.assert_status(0, agent)
        text = agent.text()
        self.assertRegex(text, r"worker rank 1 \(pid \d+\) holds up the job: stopped by a signal; others are at step \d+; "
                               r"SIGCONT continues it; it is ended")
        self.assertIn("it is ended if this lasts 10m (--hang_timeout)", text)
        self.assertRegex(text, r"worker rank 1 goes on after [\d.]+m?s")

    def test_twin_with_detection_off_it_stands_still_for_ever(self):
        agent = self.start(steps=5 * LEARNED, options=("--hang_detection", "off"))
        self.bed.signal_workers(self.learned(agent)[1:], signal.SIGSTOP)
        self.bed.event("worker_suspended", alive=[agent])
        self.assert_quiet("hang_named", 3)
        self.assertIn("kill -CONT", agent.text())

    def test_a_worker_that_waits_for_ever_is_named(self):
        """The worker sleeps in a read of a pipe, and the other one in a read of a socket: nothing shows which one is right."""
        agent = self.start(f"1@{LEARNED}=read", steps=LEARNED + 100, options=ENDED)
        hang = self.bed.event("hang", who="service", alive=[agent])
        self.assertIn("1", hang["ranks"].split(","))
        self.assertIn("neither computes nor moves data", hang["evidence"])
        self.assert_goes_on(agent)

    def test_of_those_that_cant_be_told_apart_none_is_the_cause(self):
        """Two workers wait at the same step in the same place. Negative control, with one cause: the stopped worker above."""
        agent = self.start(f"*@{LEARNED}=read", steps=LEARNED + 100, restarts=0,
                           options=("--report_file", "report.json", *ENDED))
        hang = self.bed.event("hang", who="service", alive=[agent])
        self.assertEqual("0,1", hang["ranks"])
        self.assertIn("2 workers can't be told apart", hang["evidence"])
        self.assert_status(1, agent)
        text = agent.text()
        self.assertIn("the job failed: the job hung, and which worker held it up isn't known: no progress in train, ", text)
        self.assertRegex(text, r"worker rank \d \(local rank \d, pid \d+\) hangs as others do: ")
        self.assertIn("Root Cause (not known; one of the workers that hung):", text)
        self.assertIn("hung with others, and which of them is the cause isn't known; ddprun killed it", " ".join(text.split()))
        # The report has the worker's stacks, or says how the next report can have them.
        self.assertRegex(text, r"gdb:|py-spy:|  stack     : ")

    def test_a_worker_that_spins_is_named_when_it_is_overdue(self):
        agent = self.start(f"1@{LEARNED}=spin", steps=LEARNED + 100, options=ENDED)
        hang = self.bed.event("hang", who="service", timeout=40 * SLOW, alive=[agent])
        self.assertEqual("1", hang["ranks"])
        self.assertIn("far beyond its usual time", hang["evidence"])
        self.assert_goes_on(agent)

    def test_twin_ten_times_slower_is_no_hang(self):
        agent = self.start("*@300=slower", step_ms=10, steps=360)
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("hang_named"))

    def test_a_long_checkpoint_is_no_hang(self):
        """A second, where the limit of a step is half of one; marked as what it is."""
        agent = self.start("0@500=checkpoint", steps=600)
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("hang_named"))

    def test_only_told(self):
        agent = self.start(steps=5 * LEARNED, options=("--on_hang", "report", *ENDED))
        workers = self.learned(agent)
        self.bed.signal_workers(workers[1:], signal.SIGSTOP)
        self.bed.event("hang", rank="1", alive=[agent])
        self.bed.signal_workers(workers[1:], signal.SIGCONT)
        before = len(self.bed.journal.find("step"))
        self.bed.wait(lambda: len(self.bed.journal.find("step")) > before + 2, "more steps", alive=[agent])
        self.assertEqual([], self.bed.events.find("stop_begin"))
        self.assertIn("it is left alone (--on_hang report)", agent.text())


class Unmarked(HangTestCase):
    def test_hang_timeout_watches_what_workers_do(self):
        agent = self.start("unmarked", "1@100=read", options=("--hang_timeout", f"{0.5 * SLOW:g}"))
        hang = self.bed.event("hang", who="service", alive=[agent])
        self.assertIn("1", hang["ranks"].split(","))
        self.assert_goes_on(agent)
        self.assertIn(f"a rank that holds up the others for {0.5 * SLOW:g}s is ended; one whose steps aren't known", agent.text())

    def test_twin_without_it_nothing_is_watched(self):
        agent = self.start("unmarked", "1@100=read")
        self.bed.wait(lambda: self.bed.journal.find("plan"), "the hang", alive=[agent])
        self.assert_quiet("hang", 3)

    def test_who_works_is_not_hung(self):
        agent = self.start("unmarked", steps=int(150 * SLOW), options=("--hang_timeout", f"{0.25 * SLOW:g}"))  # of 4 ms each
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("hang"))

    def test_stopped_restart(self):
        agent = self.start("unmarked", "1@100=stop", options=("--on_stopped", "restart"))
        self.bed.event("hang", rank="1", alive=[agent])
        self.assert_goes_on(agent)

    def test_twin_stopped_warn(self):
        agent = self.start("unmarked", "1@100=stop")
        suspended = self.bed.event("worker_suspended", alive=[agent])
        plan = self.bed.journal.find("plan")[0]
        self.assertLess(suspended["t"] - plan["t"], 0.5 * SLOW)
        self.bed.wait(lambda: f"kill -CONT {plan['pid']}" in agent.text(), "what to do about it", alive=[agent])
        os.kill(plan["pid"], signal.SIGCONT)
        self.assert_status(0, agent)


if __name__ == "__main__":
    unittest.main(verbosity=2)
