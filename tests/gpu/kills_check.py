#!/usr/bin/env python3
"""SIGKILL for one of several Python workers: how long until the next step of all ranks, cold and warm, and by what.

The parts of one restart follow each other, and are those of the rank that began last.
"""

import os
import random
import signal
import statistics
import time
import unittest

from gpu_bed import ON_GPU, PATIENCE, RANKS, GpuCase, figure
from timeline import wait_readable

WORLD = RANKS if ON_GPU else 2
PAUSE = 0.05  # seconds between steps
SEED = 48
WAIT = 40 if ON_GPU else PATIENCE  # seconds; what would fail later there fails at the check's limit, without a word
PARTS = ("exit", "start", "interpreter", "imports", "context", "group", "state", "step")


class Kills(GpuCase):
    def start(self, warm):
        agent = self.train(WORLD, ("--max_restarts", 1000, "--restart_backoff", 0, "--warm", warm, "--warm_memory", "50%"),
                           ("--steps", 1000000, "--pause", PAUSE, "--checkpoint", self.bed.path("checkpoint")))
        self.wait_for_step(3, WORLD, [agent])
        return agent

    def begun(self, generation):
        """The line of each rank's worker of a generation, by rank."""
        return {line["rank"]: line for line in self.bed.journal.find("begun", generation=generation)}

    def first_steps(self, generation):
        """The first step of each rank in a generation."""
        first = {}
        for line in self.steps(generation=generation):
            first.setdefault(line["rank"], line)
        return first

    def kill(self, agent, generation, rank, after):
        """Kills that rank of a generation; seconds of each part until all ranks of the next one have done a step."""
        self.bed.wait(lambda: all(len(self.steps(generation=generation, rank=rank)) >= 2 for rank in range(WORLD)),
                      "two steps of each rank", WAIT, [agent])
        wait_readable(agent.pidfd, after)  # a moment somewhere in a step
        victim = self.begun(generation)[rank]["pid"]
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        self.bed.wait(lambda: len(self.first_steps(generation + 1)) == WORLD, f"a step of generation {generation + 1}",
                      WAIT, [agent])
        self.assert_no_step_is_lost(generation)
        return self.parts(killed, victim, generation + 1)

    def assert_no_step_is_lost(self, generation):
        """Rank 0 saves after each step, before it begins the next: only the step under way is done again."""
        done = max(line["step"] for line in self.steps(generation=generation))
        first = {line["step"] for line in self.first_steps(generation + 1).values()}
        self.assertEqual(1, len(first), first)
        self.assertIn(first.pop() - done, (0, 1), f"after step {done} of generation {generation}")

    def parts(self, killed, victim, generation):
        seen = self.bed.event("worker_exit", worker_pid=victim)["t_seen"]
        last = max(self.begun(generation).values(), key=lambda line: line["t"])
        started = self.bed.event("worker_started", worker_pid=last["pid"], generation=generation)["t"]
        end = max(line["t"] for line in self.first_steps(generation).values())
        inside = {part: last[part] for part in ("imports", "context", "group", "state")}
        return {"exit": seen - killed, "start": started - seen, "interpreter": last["t"] - sum(inside.values()) - started,
                **inside, "step": end - last["t"], "total": end - killed}

    def kill_them(self, agent, kills, least, seconds):
        """That many kills, or fewer if the time is over, but not fewer than `least`; their parts."""
        rng, end, rows = random.Random(SEED), time.monotonic() + seconds, []
        while len(rows) < kills and (len(rows) < least or time.monotonic() < end):
            rows.append(self.kill(agent, len(rows) + 1, rng.randrange(WORLD), rng.uniform(0, 1.5 * PAUSE)))
        self.assertFalse(agent.ended(), "each kill is survived")
        return rows

    def report(self, how, rows):
        figure(f"{how}_kills", len(rows), "")
        for part in (*PARTS, "total"):
            figure(f"{how}_{part}", statistics.median(row[part] for row in rows), "s")
        figure(f"{how}_total_worst", max(row["total"] for row in rows), "s")
        waits = [int(line["waited_ms"]) / 1000 for line in self.bed.events.find("gpu_memory_wait")]  # a part of "start"
        figure(f"{how}_waits_for_memory", sum(waits), "s")
        for row in rows:
            self.assertAlmostEqual(row["total"], sum(row[part] for part in PARTS), places=3)

    def warm_starts(self, generations):
        return [line.get("warm") for generation in generations
                for line in self.bed.events.find("worker_started", generation=generation)]

    def end(self, agent):
        agent.signal(signal.SIGTERM)
        agent.wait(WAIT)

    def test_cold(self):
        """Fails where a step is lost, or the next generation doesn't step; the warm case's twin: no start of it is warm."""
        agent = self.start("off")
        rows = self.kill_them(agent, *((6, 3, 24) if ON_GPU else (1, 1, 0)))
        self.report("cold", rows)
        self.assertEqual({None}, set(self.warm_starts(range(1, len(rows) + 2))))
        self.end(agent)

    def test_warm(self):
        """Fails where a fork has CUDA from before, or a worker after the first ones was no fork (as those of the cold case)."""
        agent = self.start("on")
        ready = self.bed.event("warm_ready", timeout=WAIT, alive=[agent])
        figure("warm_ready_imports", int(ready["import_ms"]) / 1000, "s")
        rows = self.kill_them(agent, *((15, 8, 30) if ON_GPU else (2, 2, 0)))
        self.report("warm", rows)
        generations = range(2, len(rows) + 2)
        self.assertEqual([True] * (WORLD * len(rows)), self.warm_starts(generations))
        for generation in generations:
            self.assertEqual([""] * WORLD, [line["had_cuda"] for line in self.begun(generation).values()])
        self.end(agent)


if __name__ == "__main__":
    unittest.main(verbosity=2)
