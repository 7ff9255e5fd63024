#!/usr/bin/env python3
"""Kills at random moments of trainings with Hugging Face's Trainer, Lightning, Accelerate and FSDP2 (docs/ELASTIC.md), also
within recoveries: each ends bit by bit as an undisturbed one. The Trainer's and Lightning's scripts know nothing of ddprun; FSDP2
goes on from memory, after a restart of all.

DDPRUN_TEST_WHOLE=1: 100 kills of each; otherwise some of one that the seed draws. DDPRUN_TEST_SEED repeats a run;
DDPRUN_TEST_KILLS says how many kills there are.
"""

import collections
import os
import random
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python")]

import elastic_campaign_test as campaign  # noqa: E402
from bed import FRAMEWORKS, LAUNCHERS, ROOT, TORCH_PYTHON, WHOLE  # noqa: E402
from elastic_test import AHEAD, PATIENCE  # noqa: E402

SEED = campaign.SEED
KILLS = int(os.environ.get("DDPRUN_TEST_KILLS", "100" if WHOLE else "4"))
OPTION = "--in_process_restart"
EVERY = 5  # steps between two checkpoints in memory
TIMES = ("t", "pid", "generation", "recoveries", "seconds", "who", "event")

Form = collections.namedtuple("Form", "python script steps words options preload again")
Form.__doc__ = """again: how many steps are done again at most; workers that aren't killed keep their processes where it is 1."""
FORMS = {
    "trainer": Form(FRAMEWORKS, "elastic_trainer.py", 400, (
        "plain", "max_steps=400", "eval_strategy=steps", "eval_steps=20", "save_strategy=steps", "save_steps=20",
        "save_total_limit=1", "logging_steps=5"), (OPTION,), ",transformers.trainer,transformers.models.gpt2.modeling_gpt2", 1),
    "lightning": Form(LAUNCHERS, "elastic_lightning.py", 405, ("plain",), (OPTION,), "", 1),
    "accelerate": Form(LAUNCHERS, "elastic_accelerate.py", 400, (80,), (), ",accelerate", 1),
    "fsdp2": Form(TORCH_PYTHON, "memory_python.py", 600, (600, EVERY, "fsdp"), (), "", EVERY + 1),
}


class Frameworks(campaign.Campaign):
    def check(self, form, kills):
        form = FORMS[form]
        python = os.environ.get("DDPRUN_TEST_PYTHON", form.python)
        if not os.access(python, os.X_OK):
            self.skipTest(f"no {python}: run scripts/test --only frameworks")
        self.bed.environment["PYTHON_EXEC"] = python
        undisturbed = self.begin(form, "undisturbed")
        expected, steps = self.ends(*undisturbed[:2]), self.done(undisturbed[1])
        killed, number, stalls, again = 0, 0, [], collections.Counter()
        while killed < kills:
            killed += self.train_form(form, f"job{number}", expected, steps, kills - killed, stalls, again)
            number += 1
        stalls.sort()
        print(f"seed {SEED}: {killed} kills; from a kill to the next step {stalls[len(stalls) // 2]:.3f} s at p50, "
              f"{stalls[int(len(stalls) * 0.95)]:.3f} s at p95, {stalls[-1]:.3f} s at most; steps done again: "
              f"{dict(sorted(again.items()))}; load {os.getloadavg()[1]:.0f}", flush=True)

    def begin(self, form, name):
        journal, events = (self.bed.follower.follow(self.bed.path(f"{name}.{what}")) for what in ("steps", "events"))
        folder = [self.bed.path(f"{name}.folder")] if "lightning" in form.script else []
        agent = self.bed.run(name, ["--nproc_per_node", campaign.WORKERS, *AHEAD[:-1], AHEAD[-1] + form.preload, "--event_log",
                                    events.path, "--max_restarts", 100000, *form.options,
                                    os.path.join(ROOT, "tests", "support", form.script), journal.path, *folder, *form.words],
                             env={"OMP_NUM_THREADS": "1", "ELASTIC_EPOCHS": "27", "PYTHONPATH": os.path.join(ROOT, "python")})
        return agent, journal, events

    def ends(self, agent, journal):
        """{rank: what it had at the end}"""
        self.assert_status(0, agent, 10 * PATIENCE)
        self.bed.follower.refresh()
        return {line["rank"]: {key: value for key, value in line.items() if key not in TIMES} for line in journal.find("end")}

    @staticmethod
    def done(journal):
        """{(step, rank): {(samples, loss)}}"""
        steps = collections.defaultdict(set)
        for line in journal.find("step"):
            steps[line["step"], line["rank"]].add((tuple(line["samples"]), line["loss"]))
        return steps

    def train_form(self, form, name, expected, steps, kills, stalls, again):
        """Returns how many workers were killed."""
        agent, journal, events = self.begin(form, name)
        self.kills = []
        try:
            book = campaign.Book(journal)
            killed, _ = self.kill_some(random.Random(f"{SEED} {form.script} {name}"), agent, book, events, form.steps, kills)
            self.assertEqual(expected, self.ends(agent, journal))
            for place, lines in self.done(journal).items():
                self.assertEqual(steps[place], lines, f"step and rank {place}")
            repeated = book.read().steps_again()
            self.assertLessEqual(max(repeated), form.again)
            self.assertGreaterEqual(min(repeated), 0, "a step is lost")
            if form.again == 1:
                self.assertEqual(book.pids - killed, {line["pid"] for line in journal.find("end")}, "processes that have trained")
        except Exception:
            self.bed.follower.refresh()
            print(f"seed {SEED} failed:", *events.lines, sep="\n", flush=True)
            raise
        again.update(repeated)
        stalls += self.stalls(journal, events)
        return len(killed)

    def kill_one(self, book, events, killed, rng):
        before = len(killed)
        super().kill_one(book, events, killed, rng)
        if len(killed) > before:
            self.kills.append(time.monotonic())

    def stalls(self, journal, events):
        """From each kill to the first step of a generation that has begun since."""
        begun = [(line["t"], int(line["generation"])) for line in events.find("generation")]
        steps = sorted((line["t"], line["generation"]) for line in journal.find("step"))
        return [min(at for at, generation in steps if at > kill and generation > max(one for t, one in begun if t <= kill)) - kill
                for kill in self.kills]


def add_tests():
    print(f"seed {SEED}", flush=True)
    for form in FORMS if WHOLE else [random.Random(SEED).choice(sorted(FORMS))]:
        setattr(Frameworks, f"test_{form}", lambda self, form=form: self.check(form, KILLS))


if __name__ == "__main__":
    add_tests()
    unittest.main(verbosity=2)
