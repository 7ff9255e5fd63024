#!/usr/bin/env python3
"""Losses at random moments that only memory outlives (docs/ELASTIC.md, "Memory"): all workers of a Session at once, and a node
with shards. Each time the training goes on from the newest checkpoint: at most `every` steps and the one under way are done
again. It ends bit by bit as an undisturbed one.

DDPRUN_TEST_WHOLE=1: 50 losses of each kind. DDPRUN_TEST_SEED repeats a run; DDPRUN_TEST_KILLS says how many losses there are.
"""

import collections
import os
import random
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]

from bed import WHOLE, free_port, main_with_torch  # noqa: E402
from elastic_test import ElasticCase  # noqa: E402
from memory_test import AHEAD, EVERY, PATIENCE, TRAINING, MemoryCase  # noqa: E402
from seeds import drawn_seed  # noqa: E402

SEED = drawn_seed()
LOSSES = int(os.environ.get("DDPRUN_TEST_KILLS", "50" if WHOLE else "3"))
PACE = 10  # steps between two losses at most
LAST = 10  # steps without losses


class Losses:
    """What both kinds of loss have in common; a mixin of test cases."""

    def lose(self, steps, journal, agent, begins, lose_one):
        """Loses LOSSES times; begins: the event of a rank that begins. Checks how many steps are done again."""
        rng, again, stalls = random.Random(SEED), collections.Counter(), []
        for number in range(1, LOSSES + 1):
            last = max((line["step"] for line in journal.find("step")), default=0)
            target = min(last + rng.randrange(1, PACE), steps - LAST)
            self.bed.wait(lambda: len(journal.find("step", step=target)) >= 3, f"step {target}", PATIENCE, alive=[agent])
            threading.Event().wait(rng.uniform(0, 0.02))  # the kernel's timer decides, not the job's progress
            generation, since = max(line["generation"] for line in journal.find("step")), time.monotonic()
            lose_one(rng)
            self.bed.wait(lambda: len({line["rank"] for line in journal.find(begins) if line["generation"] > generation}) == 3,
                          "all again", PATIENCE, alive=[agent])
            begun = [line for line in journal.find(begins) if line["generation"] > generation]
            stalls.append(max(line["t"] for line in begun) - since)
            self.assertEqual(1, len({line["step"] for line in begun}), begun)
            done = max(line["step"] for line in journal.lines if line["event"] == "step" and line["generation"] <= generation)
            again[done - begun[0]["step"]] += 1
            self.assertLessEqual(done - begun[0]["step"], EVERY + 1, f"loss {number}")
        stalls.sort()
        print(f"seed {SEED}: {LOSSES} losses; steps done again: {dict(sorted(again.items()))}; from a loss to all restored "
              f"{stalls[len(stalls) // 2]:.2f} s at p50, {stalls[int(len(stalls) * 0.95)]:.2f} s at p95; "
              f"load {os.getloadavg()[1]:.0f}", flush=True)


class AllAtOnce(Losses, ElasticCase):
    def test_a_session(self):
        steps = LOSSES * PACE + 50
        digest, _ = self.undisturbed("memory", steps=steps)
        agent, journal, events = self.start("memory", steps=steps, options=["--max_restarts", LOSSES])

        def lose_one(_):
            for rank in range(3):
                self.kill(events, rank)
        self.lose(steps, journal, agent, "ready", lose_one)
        self.assertEqual(digest, self.end(agent, journal))
        self.assertEqual([], events.find("worker_kept"))


class NodesWithShards(Losses, MemoryCase):
    """Three nodes of one worker. Node 0 has the service, and is not lost."""

    def test_fsdp2(self):
        steps = LOSSES * PACE + 50
        digests, _ = self.undisturbed("fsdp", steps=steps)
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.journal = self.bed.follower.follow(self.bed.path("nodes.steps"))
        nodes = [self.start_node(number, steps) for number in range(3)]

        def lose_one(rng):
            lost = nodes.pop(rng.randrange(1, len(nodes)))
            lost.signal(signal.SIGKILL)
            nodes.append(self.start_node(len(self.bed.agents), steps))
            lost.wait(PATIENCE)
        self.lose(steps, self.journal, nodes[0], "start", lose_one)
        for node in nodes:
            self.assert_status(0, node, PATIENCE)
        self.bed.follower.refresh()
        ends = {line["rank"]: line["digest"] for line in self.journal.find("end")}
        self.assertEqual(sorted(digests.values()), sorted(ends.values()))

    def end(self, agent, journal):
        self.assert_status(0, agent, 10 * PATIENCE)  # its training is longer than those of others
        return super().end(agent, journal)

    def start_node(self, number, steps):
        return self.bed.run(f"node{number}", [
            "--nnodes", 3, "--nproc_per_node", 1, "--max_restarts", 3 * LOSSES, "--local_addr", "127.0.0.1",
            "--rdzv_backend", "c10d", "--rdzv_endpoint", self.endpoint, "--rdzv_conf", f"is_host={int(number == 0)}", *AHEAD,
            TRAINING, self.journal.path, steps, EVERY, "fsdp"])


if __name__ == "__main__":
    main_with_torch()
