#!/usr/bin/env python3
"""Checkpoints in the agent's memory (docs/ELASTIC.md, "Memory"): all workers are killed within saves, and the restarted ones end
bit by bit as undisturbed ones, from a checkpoint that is whole; what is beyond the bound is said, and training goes on without.
"""

import collections
import json
import os
import random
import select
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import DDPRUN, ROOT, SLOW, TORCH_PYTHON, BedTestCase, free_port, main_with_torch, remembered  # noqa: E402
from seeds import drawn_seed  # noqa: E402

TRAINING = os.path.join(ROOT, "tests", "support", "memory_python.py")
PARTS = os.path.join(HERE, "memory_parts.py")
PATIENCE = 60 * SLOW
EVERY, STEPS = 5, 65
AHEAD = ("--warm", "on", "--warm_memory", "50%", "--preload", "torch,torch.distributed,torch._dynamo")


class MemoryCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.python = self.bed.environment["PYTHON_EXEC"] = os.environ.get("DDPRUN_TEST_PYTHON", TORCH_PYTHON)
        self.bed.forget_warm()
        self.bed.environment["OMP_NUM_THREADS"] = "1"

    def start(self, *forms, workers=3, steps=STEPS, every=EVERY, options=(), name="job", stops=()):
        journal = self.bed.follower.follow(self.bed.path(f"{name}.steps"))
        events = self.bed.follower.follow(self.bed.path(f"{name}.events"))
        agent = self.bed.run(name, ["--nproc_per_node", workers, *AHEAD, "--event_log", events.path, *options, TRAINING,
                                    journal.path, steps, every, *forms],
                             env={"MEMORY_STOPS": ",".join(":".join(map(str, stop)) for stop in stops)})
        return agent, journal, events

    def wait(self, condition, what, agent):
        return self.bed.wait(condition, what, PATIENCE, alive=[agent])

    def end(self, agent, journal):
        """The digest of each rank's state."""
        self.assert_status(0, agent, PATIENCE)
        self.bed.follower.refresh()
        return {line["rank"]: line["digest"] for line in journal.find("end")}

    @remembered
    def undisturbed(self, *forms, **options):
        agent, journal, _ = self.start(*forms, name="undisturbed", **options)
        return self.end(agent, journal), self.losses(journal)

    @staticmethod
    def losses(journal):
        """{(step, rank): {(loss, samples)}}"""
        losses = collections.defaultdict(set)
        for line in journal.find("step"):
            losses[line["step"], line["rank"]].add((line["loss"], tuple(line["samples"])))
        return losses

    @staticmethod
    def kill_all(events, generation):
        for line in events.find("worker_started"):
            if int(line["generation"]) == generation:
                os.kill(int(line["worker_pid"]), signal.SIGKILL)

    def killed_in_saves(self, *forms, stops, workers=3, every=EVERY, waits=False):
        """A run in which all workers are killed when one has stopped in a save; waits: and the others have done a step more."""
        agent, journal, events = self.start(*forms, workers=workers, every=every, options=["--max_restarts", len(stops)],
                                            stops=stops)
        for number in range(1, len(stops) + 1):
            self.wait(lambda number=number: journal.find("stops", generation=number), f"stop {number}", agent)
            if waits:
                after = stops[number - 1][1] + 1
                self.wait(lambda after=after: len(journal.find("step", step=after)) == workers - 1, f"step {after}", agent)
            self.kill_all(events, number)
        return agent, journal


class Kills(MemoryCase):
    def check(self, *forms, kills, workers=3, every=EVERY, pieces=20):
        random_ = random.Random(drawn_seed())
        digests, losses = self.undisturbed(*forms, workers=workers, every=every)
        # Before the first kill no checkpoint is whole. With DDP the first two steps have none.
        first = 3 if every == 1 else 1
        numbers = range(first, first + kills)
        stops = [(random_.randrange(workers), every * number, random_.randrange(pieces)) for number in numbers]
        agent, journal = self.killed_in_saves(*forms, stops=stops, workers=workers, every=every)
        self.assertEqual(digests, self.end(agent, journal))
        self.assertEqual(losses, {place: lines for place, lines in self.losses(journal).items() if len(lines) == 1})
        self.check_starts(journal, stops, every)
        self.check_torn(journal, stops)

    def check_starts(self, journal, stops, every):
        for generation, (_, step, _) in enumerate(stops, 1):
            starts = {line["step"] for line in journal.find("start", generation=generation + 1)}
            whole = step - every if generation > 1 else 0
            self.assertEqual({whole}, starts, "the step of the newest checkpoint that all have")
            # The step under way comes on top: a rank may have done it before the others.
            done = max((line["step"] for line in journal.find("step", generation=generation)), default=0)
            self.assertLessEqual(done - whole, every + 1 if generation > 1 else step + 1)

    def check_torn(self, journal, stops):
        for generation, (rank, _, _) in enumerate(stops, 1):
            start = journal.find("start", generation=generation + 1, rank=rank)[0]
            self.assertGreaterEqual(start["torn"], 1, "a slot is half written")

    def test_ten_kills_within_saves(self):
        self.check(kills=10)

    def test_every_step(self):
        """Ranks may be a checkpoint apart, and have a third slot."""
        self.check(kills=4, every=1)

    def test_shards(self):
        self.check("fsdp", kills=3, workers=2)

    def test_twin_without_the_slots_numbers(self):
        """A half written checkpoint is taken for a whole one, and the training ends with other parameters."""
        digests, _ = self.undisturbed()
        agent, journal = self.killed_in_saves("blind", stops=[(0, 20, 9)], waits=True)
        self.assertNotEqual(digests, self.end(agent, journal))
        self.assertEqual({20}, {line["step"] for line in journal.find("start", generation=2)})

    def test_twin_without_the_layout_of_buckets(self):
        """Three numbers have another sum in another order."""
        digests, _ = self.undisturbed()
        agent, journal = self.killed_in_saves("unlike", stops=[(1, 20, 9)])
        self.assertNotEqual(digests, self.end(agent, journal))
        self.assertEqual({15}, {line["step"] for line in journal.find("start", generation=2)})


class Bounds(MemoryCase):
    def test_beyond_the_bound_training_goes_on_without(self):
        digests, _ = self.undisturbed(steps=20)
        agent, journal, _ = self.start(steps=20, options=["--memory_checkpoints", "1MiB"])
        self.assertEqual(digests, self.end(agent, journal))
        self.assertRegex(agent.text(), r"ddprun\.elastic: rank \d: no checkpoints in memory: .* failed: memory "
                                       r"for checkpoints: this node's .* more; --memory_checkpoints allows 1.0 MiB")

    def test_status_says_how_much_it_is(self):
        self.endpoint = f"127.0.0.1:{free_port()}"
        agent, journal, _ = self.start(steps=10**6, options=["--rdzv_backend", "c10d", "--rdzv_endpoint", self.endpoint])
        self.wait(lambda: len(journal.find("step", step=3 * EVERY)) == 3, "steps", agent)
        node = self.await_bytes(agent)
        # Each rank has two checkpoints, with three numbers for each parameter.
        least = 3 * 2 * 3 * 4 * (256 * 256 * 2)
        self.assertTrue(least < int(node["checkpoint_bytes"]) < 2 * least, node)
        self.assertRegex(self.status(), r"\n +checkpoints in memory: \d+\.\d MiB\n")
        agent.signal(signal.SIGTERM)
        agent.wait(PATIENCE)

    def status(self, *options):
        return subprocess.run([DDPRUN, "status", "--rdzv_endpoint", self.endpoint, *options], capture_output=True, text=True,
                              check=False, env=self.bed.environment, timeout=PATIENCE).stdout

    def await_bytes(self, agent):
        """The node's status, when it has the figure: it comes with the next heartbeat."""
        for _ in range(int(20 * PATIENCE)):
            text = self.status("-o", "json")
            node = json.loads(text)["jobs"][0]["nodes"][0] if text else {}
            if int(node.get("checkpoint_bytes", 0)):
                return node
            self.assertFalse(select.select([agent.pidfd], [], [], 0.05)[0])
        return self.fail(f"{node}")


class Elsewhere(MemoryCase):
    def test_alone_it_does_nothing(self):
        alone = self.bed.start_process("alone", [self.python, TRAINING, self.bed.path("alone.steps"), "12", "5"],
                                       output=self.bed.path("alone.out"), env=self.bed.environment)
        self.assert_status(0, alone, PATIENCE)
        self.assertEqual(1, alone.text().count("no checkpoints in memory: ddprun hasn't started this process"))

    def test_parts(self):
        parts = self.bed.start_process("parts", [self.python, PARTS], output=self.bed.path("parts.out"), env=self.bed.environment)
        self.assert_status(0, parts, 10 * PATIENCE)
        self.assertIn("\nOK", parts.text())


if __name__ == "__main__":
    main_with_torch()
