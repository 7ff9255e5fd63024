#!/usr/bin/env python3
"""Kills at random moments of loops that train through failures (docs/ELASTIC.md), also within recoveries. Each training ends bit
by bit as an undisturbed one; workers that aren't killed keep their processes; no step is lost, and at most one is done again.

DDPRUN_TEST_WHOLE=1: 1,000 kills, otherwise some of one form that the seed draws. DDPRUN_TEST_SEED repeats a run;
DDPRUN_TEST_KILLS says how many kills there are.
"""

import collections
import itertools
import os
import random
import signal
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

from bed import WHOLE, free_port, main_with_torch  # noqa: E402
from ddprun.data import ElasticSampler  # noqa: E402
from elastic_test import TRAINING, ElasticCase  # noqa: E402
from seeds import drawn_seed  # noqa: E402

SEED = drawn_seed()
KILLS = int(os.environ.get("DDPRUN_TEST_KILLS", "1000" if WHOLE else "12"))
# The forms of a loop (elastic_python.py): their words, steps of a training, whether a repeated step has the same loss. If a
# collective breaks after an update, the step that is done again reports the loss after the update.
FORMS = {
    "plain": ((), 1500, True),
    "bf16": (("bf16",), 1500, True),
    "scaler": (("scaler",), 1500, True),
    "accumulate": (("accumulate", "narrow"), 1500, True),
    "gan": (("gan",), 1000, False),
    "sgd": (("sgd",), 1500, True),
    "data_loader": (("closure", "workers"), 400, True),
    "collectives": (("with", "halves"), 1000, False),
    "large": (("large",), 40, True),
}
WORKERS = 3
LAST_STEPS = 12  # without kills, because a worker that is lost after the others have left the loop restarts all
DURING_RECOVERY = 4  # one kill of so many


class Book:
    """What a training's journal says so far."""

    def __init__(self, journal):
        self._journal, self._read = journal, 0
        self.pids, self.last, self.generations = set(), collections.Counter(), {}

    def read(self):
        for line in self._journal.lines[self._read:]:
            self._read += 1
            if line["event"] == "step":
                step = line["step"]
                self.pids.add(line["pid"])
                self.last[line["pid"]] = max(self.last[line["pid"]], step)
                first, last = self.generations.get(line["generation"], (step, step))
                self.generations[line["generation"]] = min(first, step), max(last, step)
        return self

    @property
    def step(self):
        return max(self.last.values(), default=0)

    def steps_again(self):
        """How many steps were done again, after each generation with steps: less than none is a step that is lost."""
        ordered = [self.generations[one] for one in sorted(self.generations)]
        return [last + 1 - first for (_, last), (first, _) in zip(ordered, ordered[1:])]


class Campaign(ElasticCase):
    def check(self, form, kills):
        words, steps, losses = FORMS[form]
        digest, undisturbed = self.undisturbed(*words, steps=steps)
        done = number = 0
        while done < kills:
            done += self.train(f"{form}{number}", words, steps, digest, undisturbed if losses else None, kills - done)
            number += 1

    def train(self, name, words, steps, digest, undisturbed, kills):
        """Returns how many workers were killed."""
        seed = f"{SEED} {name}"
        agent, journal, events = self.start(*words, steps=steps, name=name, options=["--max_restarts", 100000])
        book = Book(journal)
        try:
            killed, within = self.kill_some(random.Random(seed), agent, book, events, steps, kills)
            self.assertEqual(digest, self.end(agent, journal))
            again = book.read().steps_again()
            self.assertEqual(set(), set(again) - {0, 1}, "steps done again; less than none is a lost one")
            # New workers that are still setting themselves up when another one is killed may be started anew.
            self.assertEqual(book.pids - killed, {line["pid"] for line in journal.find("end")}, "processes that have trained")
            for place, lines in self.steps_of(journal).items() if undisturbed else ():
                self.assertEqual({undisturbed[place][0]}, set(lines), f"step and rank {place}")
        except Exception:
            self.bed.follower.refresh()
            print(f"seed {seed} failed:", *events.lines, sep="\n", flush=True)
            raise
        print(f"seed {seed}: {len(killed)} kills, {within} within recoveries; steps done again: "
              f"{dict(collections.Counter(again))}", flush=True)
        return len(killed)

    def kill_some(self, rng, agent, book, events, steps, kills):
        """Returns (the pids that were killed, how many of them maybe within a recovery)."""
        killed, within = set(), 0
        # Kills come all over the training, however many there are.
        pause = max(1, min(40, (steps - LAST_STEPS) // (kills + 1)))
        while len(killed) < kills:
            if killed and rng.randrange(DURING_RECOVERY) == 0:
                within += 1
                threading.Event().wait(rng.uniform(0, 0.5))  # the kernel's timer decides, not the job's progress
            else:
                step = book.read().step + rng.randrange(1, pause + 1)
                self.wait(lambda step=step: self.all_at(book, events, min(step, steps)), f"step {step} of all", agent)
                threading.Event().wait(rng.uniform(0, 0.02))
            self.bed.follower.refresh()
            if book.read().step > steps - LAST_STEPS:
                break
            self.kill_one(book, events, killed, rng)
        return killed, within

    def all_at(self, book, events, step):
        living = self.living(events).values()
        return len(living) == WORKERS and all(book.read().last[pid] >= step for pid in living)

    def kill_one(self, book, events, killed, rng):
        """Not the last one that is known to have the state: without it all would be restarted from a checkpoint in memory."""
        living = [pid for pid in self.living(events).values() if pid not in killed]
        trained = [pid for pid in living if pid in book.pids]
        candidates = [pid for pid in living if trained and trained != [pid]]
        if not candidates:
            return
        pid = rng.choice(candidates)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        killed.add(pid)


class Walk(ElasticCase):
    """Nodes of one worker each join and are lost, all on this machine's loopback."""

    MOST, EPOCHS, PER_EPOCH, SAMPLES = 6, 30, 40, 480

    @unittest.skipUnless(WHOLE, "DDPRUN_TEST_WHOLE=1: it takes some minutes")
    def test_from_one_to_six_and_back(self):
        """Each sample is learned from once an epoch."""
        rng = random.Random(SEED)
        steps = self.EPOCHS * self.PER_EPOCH
        self.journal = self.bed.follower.follow(self.bed.path("steps"))
        self.endpoint = f"127.0.0.1:{free_port()}"
        nodes = [self.start_node(0, steps)]
        worlds = [*range(2, self.MOST + 1), *range(self.MOST - 1, 0, -1)]
        self.wait_for_world(1, 10, nodes[0])
        pid = self.journal.find("step")[0]["pid"]
        for world in worlds:
            if world > len(nodes):
                nodes.append(self.start_node(len(nodes), steps))
            else:
                nodes.pop(rng.randrange(1, len(nodes))).signal(signal.SIGKILL)
            self.wait_for_world(world, rng.randrange(5, 40), nodes[0])
        self.end(nodes[0], self.journal)
        self.assertEqual({pid}, {line["pid"] for line in self.journal.find("end")}, "the first node's process")
        walked = [line["world"] for line in sorted(self.journal.find("step", rank=0), key=lambda line: line["t"])]
        print(f"seed {SEED}: worlds {[world for world, _ in itertools.groupby(walked)]}", flush=True)
        self.check_samples(steps)

    def start_node(self, number, steps):
        return self.bed.run(f"node{number}.{len(self.bed.agents)}", [
            "--nnodes", f"1:{self.MOST}", "--nproc_per_node", 1, "--max_restarts", 1000, "--rdzv_backend", "c10d",
            "--rdzv_endpoint", self.endpoint, "--local_addr", "127.0.0.1",
            "--rdzv_conf", f"is_host={int(number == 0)},last_call_timeout=0.01", TRAINING, self.journal.path, steps],
            env={"OMP_NUM_THREADS": "1", "ELASTIC_DELAY": "0.1"})

    def wait_for_world(self, world, count, agent):
        """Until a job of that many ranks, the newest one, has done so many steps."""
        def done():
            lines = [line for line in self.journal.lines[-20 * count * self.MOST:] if line["event"] == "step"]
            newest = max((line["generation"] for line in lines), default=0)
            own = {line["step"] for line in lines if line["generation"] == newest and line["world"] == world}
            return len(own) >= count
        self.wait(done, f"{count} steps of {world}", agent)

    def check_samples(self, steps):
        """A rank that is killed after an update has written no line, so a step with fewer lines than ranks may lack samples."""
        by_step = collections.defaultdict(list)
        for line in self.journal.find("step"):
            by_step[line["step"]].append(line)
        sampler = ElasticSampler(self.SAMPLES, global_batch=self.SAMPLES // self.PER_EPOCH, seed=1, rank=0, world_size=1)
        for step in range(1, steps + 1):
            batch = sorted(next(iter(sampler)))
            sampler.commit()
            lines = by_step[step]
            newest = [line for line in lines if line["generation"] == max(line["generation"] for line in lines)]
            samples = sorted(one for line in newest for one in line["samples"])
            self.assertLessEqual(set(samples), set(batch), f"step {step}")
            self.assertEqual(len(samples), len(set(samples)), f"step {step}")
            if len(newest) == newest[0]["world"]:
                self.assertEqual(batch, samples, f"step {step}")


def add_tests():
    print(f"seed {SEED}", flush=True)
    if not WHOLE:
        shares = {random.Random(SEED).choice([one for one in FORMS if one != "large"]): KILLS}
    else:
        few = KILLS // 25  # a step of the large one takes as long as fifty of the others
        each, rest = divmod(KILLS - few, len(FORMS) - 1)
        shares = {form: few if form == "large" else each + (rest if form == "plain" else 0) for form in FORMS}
    for form, kills in shares.items():
        setattr(Campaign, f"test_{form}", lambda self, form=form, kills=kills: self.check(form, kills))


if __name__ == "__main__":
    add_tests()
    main_with_torch()
