#!/usr/bin/env python3
"""Kills at random moments of a job's life: it always gets back to a full, consistent generation.

The seed is printed; DDPRUN_TEST_SEED=N repeats a run, DDPRUN_TEST_REPETITIONS=N makes it longer.
"""

import os
import random
import signal
import threading

import job
from bed import SLOW
from timeline import state_of

SEED = int(os.environ.get("DDPRUN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
REPETITIONS = int(os.environ.get("DDPRUN_TEST_REPETITIONS", "5"))


class RandomKills(job.ClusterTestCase):
    def test_recovers_from_a_kill_at_any_moment(self):
        print(f"seed {SEED}", flush=True)
        rng = random.Random(SEED)
        agents, generation = self.start_all(2, "1:2", restarts=100, options=("--nproc_per_node", 1))
        for repetition in range(REPETITIONS):
            victim = rng.choice(("worker", "agent"))
            # The second fault comes while the job may still be recovering from the first.
            moments = [rng.uniform(0, 0.15) for _ in range(2)]
            with self.subTest(repetition=repetition, victim=victim, moments=moments, seed=SEED):
                for moment in moments:
                    generation = self.kill_after(moment, victim, agents)
                if agents[1].ended():
                    agents[1] = self.start(2, "1:2", restarts=100, name=f"agent2-{repetition}")
                generation = self.settle(agents, generation)
        self.check_history()
        self.finish(agents, generation, 2)

    def kill_after(self, seconds, victim, agents):
        """The kernel's timer decides the moment, not our own progress. Returns the generation that was hit."""
        fired = threading.Event()
        timer = threading.Timer(seconds, fired.set)
        timer.start()
        fired.wait()
        self.bed.follower.refresh()
        lines = self.bed.journal.find("worker")
        newest = max(line["generation"] for line in lines)
        if victim == "agent":
            agents[1].signal(signal.SIGKILL)
            agents[1].wait(5 * SLOW)
        else:
            self.bed.signal_workers([line for line in lines if line["generation"] == newest][-1:], signal.SIGKILL)
        return newest

    def settle(self, agents, generation):
        """Waits for a generation of two whose workers all live: the newest one that anybody saw."""
        def settled():
            lines = self.bed.journal.find("worker")
            newest = [line for line in lines if line["generation"] == max(l["generation"] for l in lines)]
            full = len(newest) == 2 and newest[0]["world"] == 2 and newest[0]["generation"] > generation
            alive = all(state_of(line["pid"]) not in (None, "Z", "X") for line in newest)
            return newest if full and alive else None
        return self.bed.wait(settled, f"two live workers after generation {generation}", alive=agents)[0]["generation"]

    def check_history(self):
        """In no generation was a rank given twice, and world sizes agree."""
        by_generation = {}
        for line in self.bed.journal.find("worker"):
            by_generation.setdefault(line["generation"], []).append(line)
        for lines in by_generation.values():
            self.assertEqual(len(lines), len({line["rank"] for line in lines}), lines)
            self.assertEqual(1, len({line["world"] for line in lines}), lines)
            self.assertEqual(1, len({line["restart_count"] for line in lines}), lines)


if __name__ == "__main__":
    job.main()
