#!/usr/bin/env python3
"""Kills at random moments of a job's life: it always gets back to a full, consistent generation.

The seed is printed; DDPRUN_TEST_SEED=N repeats a run, DDPRUN_TEST_REPETITIONS=N makes it longer.
"""

import os
import random
import signal
import threading
import time

import job
from bed import SLOW
from seeds import drawn_seed
from timeline import state_of

SEED = drawn_seed()
REPETITIONS = int(os.environ.get("DDPRUN_TEST_REPETITIONS", "5"))


class RandomKills(job.ClusterTestCase):
    def test_recovers_from_a_kill_at_any_moment(self):
        print(f"seed {SEED}", flush=True)
        rng = random.Random(SEED)
        agents, generation = self.start_all(2, "1:2", restarts=100, options=("--nproc_per_node", 1))
        # The job waits for longer after each growth that gained nothing (R3): 10 and 20 s here, with a fifth agent 80.
        victims = rng.sample(["worker"] * REPETITIONS + ["agent"] * 3, REPETITIONS)
        for repetition, victim in enumerate(victims):
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

    def test_a_dead_service_costs_nothing_beside_what_else_is_killed(self):
        """One restart for each worker that is killed, whenever the service is; and all agents are back soon."""
        print(f"seed {SEED}", flush=True)
        rng = random.Random(SEED)
        agents, generation = self.start_all(2, "2", restarts=REPETITIONS, options=("--nproc_per_node", 1))
        for repetition in range(REPETITIONS):
            moments = [rng.uniform(0, 0.1) for _ in range(2)]
            victims = rng.sample(("worker", "service"), 2)
            with self.subTest(repetition=repetition, victims=victims, moments=moments, seed=SEED):
                for victim, moment in zip(victims, moments):
                    self.kill_after(moment, victim, agents)
                self.bed.event("service_restarted", count=repetition + 1, alive=agents)
                self.bed.event("recovered", count=repetition + 1, alive=agents)
                generation = self.settle(agents, generation)
                self.wait_out_deaths(repetition)
        self.check_history()
        self.assertEqual(REPETITIONS, max(line["restart_count"] for line in self.bed.journal.find("worker")))
        self.assertEqual(REPETITIONS + 1, len({line["generation"] for line in self.bed.journal.find("worker")}))
        self.assertEqual([], self.bed.events.find("node_lost"))
        took = [int(line["ms"]) for line in self.bed.events.find("recovered")]
        print(f"all agents back after {sorted(took)} ms", flush=True)
        self.assertLess(sorted(took)[len(took) // 2], 300 * SLOW)
        self.finish(agents, generation, 2)

    def wait_out_deaths(self, repetition):
        """An agent gives up a service that dies six times within 10 s: this is about something else."""
        if repetition < 4 or repetition + 1 == REPETITIONS:
            return
        deaths = self.bed.events.find("service_restarted")
        while time.monotonic() < deaths[-4]["t"] + 10:
            threading.Event().wait(deaths[-4]["t"] + 10 - time.monotonic())

    def kill_service(self):
        started = [line for line in self.bed.events.lines if line["event"] in ("service_started", "service_restarted")]
        os.kill(started[-1]["service_pid"], signal.SIGKILL)

    def kill_after(self, seconds, victim, agents):
        """The kernel's timer decides the moment, not our own progress. Returns the generation that was hit."""
        fired = threading.Event()
        timer = threading.Timer(seconds, fired.set)
        timer.start()
        fired.wait()
        self.bed.follower.refresh()
        lines = self.bed.journal.find("worker")
        newest = max(line["generation"] for line in lines)
        if victim == "service":
            self.kill_service()
        elif victim == "agent":
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
