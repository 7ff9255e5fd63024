#!/usr/bin/env python3
"""Python loops train through kills over NCCL (docs/ELASTIC.md): survivors keep their processes, no step is lost, and all ranks
end with the same bits. How long no step ends. The twin's groups are those of tests/support/fake_nccl.py."""

import os
import random
import signal
import statistics
import time
import unittest

from gpu_bed import ON_GPU, PATIENCE, RANKS, ROOT, GpuCase, figure
from timeline import wait_readable

FORM = "gpu" if ON_GPU else "nccl"
SEED = int(os.environ.get("DDPRUN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
WAIT = 40 if ON_GPU else PATIENCE  # seconds; what would fail later there fails at the check's limit, without a word
BETWEEN = 15 if ON_GPU else 5  # steps between two kills
PAUSE = 0.02  # seconds that a step computes for


class ElasticCase(GpuCase):
    SCRIPT, EVERY = "elastic_python.py", ()

    def setUp(self):
        super().setUp()
        print(f"DDPRUN_TEST_SEED={SEED}", flush=True)
        self.bed.environment.update(DDPRUN_ELASTIC_NCCL="1", ELASTIC_DELAY=str(PAUSE))

    def start(self, name, steps, *forms):
        self.journal = self.bed.follower.follow(self.bed.path(f"{name}.steps"))
        options = ("--warm", "on", "--warm_memory", "50%", "--preload", "torch,torch.distributed,torch._dynamo")
        script = str(ROOT / "tests" / "support" / self.SCRIPT)
        return self.launch(RANKS, options, script, self.journal.path, steps, *self.EVERY, FORM, *forms, name=name)

    def end(self, agent, steps):
        """What the ranks have at the end."""
        self.finish_job(agent)
        self.bed.follower.refresh()
        ends = self.journal.find("end")
        self.assertEqual([steps] * RANKS, [line["step"] for line in ends])
        if not self.EVERY:
            self.assertEqual(1, len({line["digest"] for line in ends}), "all ranks have the same bits")
        return {line["rank"]: line["digest"] for line in ends}

    def newest(self, rank):
        return max(self.journal.find("step", rank=rank), key=lambda line: line["t"], default=None)

    def kill(self, agent, number, rng):
        """Kills a rank after some more steps. Returns the seconds until its successor is ready, and until all do a step."""
        def all_there():
            self.bed.follower.refresh()
            lines = [self.newest(rank) for rank in range(RANKS)]
            return lines if all(line and line["step"] >= number * BETWEEN for line in lines) else None
        lines = self.bed.wait(all_there, f"step {number * BETWEEN} of all", WAIT, [agent])
        wait_readable(agent.pidfd, rng.uniform(0, 2 * PAUSE))  # a moment somewhere in a step
        victim = rng.choice(lines)
        killed = time.monotonic()
        os.kill(victim["pid"], signal.SIGKILL)

        def all_go_on():
            self.bed.follower.refresh()
            after = [self.newest(rank) for rank in range(RANKS)]
            return after if all(line["t"] > killed and line["generation"] > number for line in after) else None
        after = self.bed.wait(all_go_on, "a step of all", WAIT, [agent])
        ready = max((line["t"] for line in self.journal.find("ready") if line["t"] > killed), default=killed)
        return ready - killed, max(line["t"] for line in after) - killed

    def check_kills(self, name, kills, *forms):
        steps = (kills + 2) * BETWEEN
        stalls, rng, agent = [], random.Random(SEED), self.start(name, steps, *forms)
        for number in range(1, kills + 1):
            stalls.append(self.kill(agent, number, rng))
        digest = self.end(agent, steps)
        self.assertEqual(RANKS + kills, len(self.bed.events.find("worker_started")), "survivors were started anew")
        figure(f"{name}_kills", kills, "")
        for part, seconds in zip(("until_the_new_worker_is_ready", "stall"), zip(*stalls)):
            figure(f"{name}_{part}", statistics.median(seconds), "s")
            figure(f"{name}_{part}_worst", max(seconds), "s")
        undisturbed = self.end(self.start(f"{name} undisturbed", steps, *forms), steps)
        figure(f"{name}_same_bits_as_undisturbed", int(digest == undisturbed), "")
        if not ON_GPU:  # NCCL may add in another order in another generation
            self.assertEqual(undisturbed, digest)


class Elastic(ElasticCase):
    def test_plain(self):
        self.check_kills("plain", 100 if ON_GPU else 2)

    def test_a_scaler_several_optimizers_and_own_collectives(self):
        self.check_kills("scaler", 20 if ON_GPU else 1, "scaler", "gan", "with")

    @unittest.skipUnless(ON_GPU, "python_elastic_nccl has the twin")
    def test_large(self):
        self.check_kills("large", 10, "large")


class Shards(ElasticCase):
    """FSDP2: all go back to checkpoints of each five steps in the agent's memory."""
    SCRIPT, EVERY = "elastic_fsdp.py", (5,)

    def test_shards(self):
        self.check_kills("fsdp", 10 if ON_GPU else 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
