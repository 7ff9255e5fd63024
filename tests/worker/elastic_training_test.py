#!/usr/bin/env python3
"""A Session's training whose number of workers walks while faults come, under the real launcher: a small sample of
bench/elastic_training_bench.py, and what its checks say of histories that mustn't be."""

import os
import random
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import cluster  # noqa: E402
import elastic_training as elastic  # noqa: E402
from seeds import drawn_seed  # noqa: E402

SEED = drawn_seed()
EPOCHS = 3
FALL_EPOCHS = 8


class Walk(cluster.ClusterTestCaseMixin, unittest.TestCase):
    """From one worker to three and back to two, and one is killed: in the middle of epochs."""

    def setUp(self):
        print(f"seed {SEED}", flush=True)

    def walk(self, environment=None):
        training = elastic.walking(random.Random(SEED), self.cluster, EPOCHS, environment=environment)

        def run(of):
            of.start_node(elastic.HOST)
            of.wait_for_steps(2)
            of.walk_to(3)
            generation = of.generation
            self.assertTrue(of.kill_worker())
            of.wait_for_steps(2, after=generation)
            generation = of.generation
            self.assertTrue(of.remove_node("stopped agent"))
            of.wait_for_steps(1, after=generation)
            of.finish()
            history = elastic.History(of.bed.journal.lines)
            elastic.check_samples(history, EPOCHS)
            return {lines[0]["world"] for _, _, lines in history.steps}
        return elastic.conduct(training, run)

    def test_each_sample_once_an_epoch(self):
        self.assertLessEqual({1, 2, 3}, self.walk())

    def test_twin_that_deals_by_rank_alone(self):
        with self.assertRaisesRegex(elastic.Wrong, "epoch 0: .* samples were (learned from twice|left out)"):
            self.walk({"SESSION_PROBE_TWIN": "1"})


class Loss(cluster.ClusterTestCaseMixin, unittest.TestCase):
    """A node is lost and another one comes, and the loss at the end is the undisturbed one."""

    @classmethod
    def train(cls, faults, per_worker=False):
        training = elastic.falling(random.Random(SEED), cls.cluster, 1, per_worker, FALL_EPOCHS)
        return elastic.conduct(training, lambda of: elastic.fall(of, faults, FALL_EPOCHS))["loss"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print(f"seed {SEED}", flush=True)
        cls.undisturbed = cls.train(0)

    def off(self, per_worker):
        return abs(self.train(2, per_worker) / self.undisturbed - 1)

    def test_constant_steps(self):
        self.assertLessEqual(self.off(per_worker=False), elastic.SAME_LOSS)

    def test_twin_whose_steps_change(self):
        self.assertGreater(self.off(per_worker=True), elastic.SAME_LOSS)


class WhatHistories(unittest.TestCase):
    """What the checks say of a training of one epoch of four samples in two steps, of two ranks."""

    def lines(self, second=((0, 2), (1, 3)), weight=1, before="b"):
        found = []
        for step, shares in enumerate((((0, 0), (1, 1)), second)):
            for rank, sample in shares:
                found.append({"event": "learned", "step": step, "generation": step, "rank": rank, "world": 2, "epoch": 0,
                              "before": ("a", before)[step], "weight": (1, weight)[step], "samples": [sample]})
                found.append({"event": "step", "step": step + 1, "generation": step, "digest": ("b", "c")[step]})
        return found

    def check(self, lines):
        history = elastic.History(lines)
        elastic.check_samples(history, 1, 4)
        return history

    def test_each_once(self):
        self.assertEqual([(2, 1), (1, 0)], [(step, generation) for step, generation, _ in self.check(self.lines()).steps])

    def test_a_try_that_nobody_went_on_from_does_not_count(self):
        again = [{**line, "generation": 0, **({"digest": "x"} if line["event"] == "step" else {})} for line in self.lines()[4:]]
        self.check([*self.lines()[:4], *again, *self.lines()[4:]])

    def test_twice_and_never(self):
        with self.assertRaisesRegex(elastic.Wrong, "learned from twice, such as .1."):
            self.check(self.lines(second=((0, 2), (1, 1))))
        with self.assertRaisesRegex(elastic.Wrong, "1 samples were left out, such as .3."):
            self.check([line if line.get("samples") != [3] else {**line, "weight": 0} for line in self.lines(weight=2)])

    def test_unfair_weight(self):
        with self.assertRaisesRegex(elastic.Wrong, "weighs 0.25 among 2 of step 2"):
            self.check(self.lines(weight=0.5))

    def test_a_rank_that_is_missing(self):
        with self.assertRaisesRegex(elastic.Wrong, "without some ranks"):
            self.check(self.lines(second=((0, 2),)))

    def test_parameters_from_nowhere(self):
        with self.assertRaisesRegex(elastic.Wrong, "went on with parameters of step 1 that no rank has computed"):
            self.check(self.lines(before="z"))


class WhatNoise(unittest.TestCase):
    def test_of_few_losses(self):
        low, high = elastic.noise([1.0, 1.1, 0.9, 1.0])
        # s = 0.0816, t = 5.841, sqrt(1 + 1/4) = 1.118.
        self.assertAlmostEqual(1 - 0.533, low, 3)
        self.assertAlmostEqual(1 + 0.533, high, 3)


if __name__ == "__main__":
    cluster.main()
