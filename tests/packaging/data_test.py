#!/usr/bin/env python3
"""ddprun.data without torch: the order and the deals are C++'s, each sample comes once an epoch, states and mistakes."""

import json
import os
import random
import sys
import unittest
from unittest import mock

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
EXPECTED = os.path.join(ROOT, "tests", "unit", "worker", "data")
sys.path[:0] = [os.path.join(ROOT, "python"), EXPECTED]

import make_orders  # noqa: E402
from ddprun import data  # noqa: E402
from ddprun.data import ElasticSampler, KeyedPermutation  # noqa: E402

SEED = int(os.environ.get("DDPRUN_TEST_SEED", "20261125"))


def ranks_of(world, *arguments, **options):
    return [ElasticSampler(*arguments, rank=rank, world_size=world, **options) for rank in range(world)]


class Order(unittest.TestCase):
    def test_is_that_of_the_files_which_cpp_reads_too(self):
        for name in make_orders.FILES:
            with open(os.path.join(EXPECTED, name), encoding="utf-8") as source:
                self.assertEqual(source.read(), make_orders.text(name), f"{name} isn't what make_orders.py makes")

    def test_has_each_number_once(self):
        for size in (*range(1, 300), 65535, 65537):
            self.assertEqual(list(range(size)), sorted(KeyedPermutation(size, size, 3).slice(0, size)), size)

    def test_refuses_places_and_sizes_that_are_none(self):
        order = KeyedPermutation(9, 0, 0)
        for place in (-1, 9):
            with self.assertRaisesRegex(IndexError, f"place {place} of 9"):
                order[place]  # pylint: disable=pointless-statement
        for size in (0, 2**62 + 1):
            with self.assertRaisesRegex(ValueError, f"not {size}"):
                KeyedPermutation(size, 0, 0)


class Histories(unittest.TestCase):
    """World sizes walk from 1 to 6 under faults; tests/sim/data has a million of them in C++."""

    COUNT = 400

    def history(self, rng, saves_state=lambda sampler, dealt: sampler.state_dict()):
        """How often each sample was learned from in two epochs, of a random job."""
        size = rng.randrange(1, 60)
        batch = {rng.choice(("global_batch", "batch_per_rank")): rng.randrange(1, 9)}
        seed, state = rng.randrange(1 << 64), None
        saved, learned = {}, {}  # learned: what is in the model; saved: what is in the checkpoint
        for _ in range(10_000):
            world = rng.randrange(1, 7)
            ranks = ranks_of(world, size, seed=seed, **batch)
            if state is not None:
                for sampler in ranks:
                    sampler.load_state_dict(state)
            learned = dict(saved)
            until_fault = rng.randrange(1, 12)
            while until_fault and ranks[0].epoch < 2:
                steps, dealt = [iter(sampler) for sampler in ranks], 0
                for shares in zip(*steps):
                    dealt += 1
                    for share in shares:
                        for sample in share:
                            learned[ranks[0].epoch, sample] = learned.get((ranks[0].epoch, sample), 0) + 1
                    for sampler in ranks:
                        sampler.commit()
                    self.assertEqual(1, len({sampler.state_text() for sampler in ranks}))
                    if rng.random() < 0.5:
                        saved, state = dict(learned), saves_state(ranks[0], dealt)
                    until_fault -= 1
                    if not until_fault or rng.random() < 0.1:  # an iteration that is begun anew goes on where it was
                        break
            if ranks[0].epoch == 2:
                return size, learned
        self.fail("a job that doesn't end")

    def test_each_sample_once_an_epoch(self):
        for number in range(self.COUNT):
            size, learned = self.history(random.Random(f"{SEED} {number}"))
            self.assertEqual({(epoch, sample): 1 for epoch in range(2) for sample in range(size)}, learned,
                             f"history {number} of seed {SEED}")

    def test_a_state_that_counts_what_is_read_ahead_loses_samples(self):
        """Negative control: as if a sampler counted what it has dealt to loader workers."""
        def reads_ahead(sampler, _):
            state = sampler.state_dict()
            count = sampler.step().global_count
            return {**state, "consumed": state["consumed"] + count} if state["consumed"] + count < state["dataset_size"] \
                else state
        wrong = 0
        for number in range(self.COUNT // 4):
            size, learned = self.history(random.Random(f"{SEED} {number}"), reads_ahead)
            wrong += {(epoch, sample): 1 for epoch in range(2) for sample in range(size)} != learned
        self.assertGreater(wrong, self.COUNT // 8)


class Steps(unittest.TestCase):
    def test_weights_make_the_mean_of_all_samples(self):
        values = [float(value * value) for value in range(11)]
        for world in range(1, 8):
            for sampler in (ranks := ranks_of(world, 11, global_batch=4, seed=3)):
                sampler.set_epoch(1)
            while ranks[0].epoch == 1:
                shares = [next(iter(sampler)) for sampler in ranks]
                samples = [values[index] for share in shares for index in share]
                means = [sum(values[index] for index in share) / max(1, len(share)) for share in shares]
                weighted = sum(sampler.step().weight * mean for sampler, mean in zip(ranks, means)) / world
                self.assertAlmostEqual(sum(samples) / len(samples), weighted)
                for sampler in ranks:
                    sampler.commit()

    def test_the_last_step_is_dealt_evenly_and_may_leave_ranks_without(self):
        ranks = ranks_of(4, 10, batch_per_rank=2, shuffle=False)
        for sampler in ranks:
            next(iter(sampler))
            sampler.commit()
        self.assertEqual([[8], [9], [], []], [next(iter(sampler)) for sampler in ranks])
        self.assertEqual([(True, 2, 1), (True, 2, 1), (True, 2, 0), (True, 2, 0)],
                         [(step.last_of_epoch, step.global_count, step.count) for step in (r.step() for r in ranks)])
        self.assertIsNone(data.collate([]))
        self.assertEqual(3, data.collate([1, 2], sum))

    def test_steps_ahead_are_those_that_follow(self):
        """A program that accumulates gradients over several batches needs the weights of the steps ahead."""
        sampler = ElasticSampler(11, global_batch=4, rank=1, world_size=2)
        ahead = [sampler.step(number) for number in range(3)]
        for expected in ahead:
            self.assertEqual(len(next(iter(sampler))), expected.count)
            self.assertEqual(expected, sampler.step())
            sampler.commit()
        self.assertEqual([0, 4, 8], [step.first for step in ahead])
        for number in (-1, 3):
            with self.assertRaisesRegex(ValueError, f"no step of epoch 1 is {number} after the one at sample 0 of 11"):
                sampler.step(number)

    def test_length_counts_the_steps_of_an_iteration(self):
        """A loop's `i / len(loader)` and `i + 1 == len(loader)` are as with any other sampler."""
        sampler = ElasticSampler(10, global_batch=4, rank=0, world_size=1)
        sampler.load_state_dict({**sampler.state_dict(), "consumed": 4})
        lengths = [len(sampler)]
        for _ in sampler:
            lengths.append(len(sampler))
            sampler.commit()
            lengths.append(len(sampler))
        self.assertEqual([2] * 5, lengths)
        self.assertEqual([3, 3, 3], [len(sampler) for _ in sampler])
        sampler.load_state_dict({**sampler.state_dict(), "consumed": 8})
        self.assertEqual(1, len(sampler))

    def test_rank_and_world_size_are_the_launchers(self):
        with mock.patch.dict(os.environ, {"RANK": "2", "WORLD_SIZE": "3"}):
            sampler = ElasticSampler(range(9), batch_per_rank=1)
        self.assertEqual((2, 3), (sampler.rank, sampler.world_size))

    def test_set_epoch_as_for_distributed_sampler(self):
        sampler = ElasticSampler(10, global_batch=4, rank=0, world_size=1)
        next(iter(sampler))
        sampler.commit()
        sampler.set_epoch(0)  # that it is in: nothing happens, as a resumed loop needs it
        self.assertEqual((0, 4), (sampler.epoch, sampler.consumed))
        sampler.set_epoch(5)
        self.assertEqual((5, 0), (sampler.epoch, sampler.consumed))


class Mistakes(unittest.TestCase):
    def sampler(self, **options):
        return ElasticSampler(10, **{"global_batch": 4, "rank": 0, "world_size": 1, **options})

    def test_a_commit_needs_a_step(self):
        sampler = self.sampler()
        with self.assertRaisesRegex(RuntimeError, "at sample 0 of epoch 0 was not dealt"):
            sampler.commit()
        next(iter(sampler))
        sampler.commit()
        with self.assertRaisesRegex(RuntimeError, "at sample 4 of epoch 0"):
            sampler.commit()

    def test_what_was_read_ahead_before_a_reform_is_refused(self):
        sampler = self.sampler()
        steps = iter(sampler)
        next(steps), next(steps)
        sampler.commit()
        sampler.reform(1, 2)
        with self.assertRaisesRegex(RuntimeError, "was not dealt since the last reform"):
            sampler.commit()
        with self.assertRaisesRegex(RuntimeError, "begin a new iteration"):
            next(steps)
        self.assertEqual(ElasticSampler(10, global_batch=4, rank=1, world_size=2).state_dict(),
                         {**sampler.state_dict(), "consumed": 0})
        self.assertEqual(2, len(next(iter(sampler))))

    def test_an_epoch_without_a_commit_is_warned_of(self):
        sampler = self.sampler()
        list(sampler)
        with self.assertWarnsRegex(UserWarning, "call commit"):
            list(sampler)

    def test_options_that_cannot_be(self):
        for options, text in (({"global_batch": None}, "either global_batch or batch_per_rank"),
                              ({"batch_per_rank": 1}, "either global_batch or batch_per_rank"),
                              ({"global_batch": 0}, "not 0"), ({"rank": 1}, "rank is 1"), ({"world_size": 0}, "world size, 0"),
                              ({"seed": -1}, "not -1"), ({"seed": 1.5}, "not 1.5")):
            with self.assertRaisesRegex(ValueError, text):
                self.sampler(**options)
        with self.assertRaisesRegex(ValueError, "dataset_size is 0"):
            ElasticSampler([], global_batch=1)
        with self.assertRaisesRegex(ValueError, "with a length, or the number of its samples, not generator"):
            ElasticSampler((sample for sample in "ab"), global_batch=1)


class States(unittest.TestCase):
    TEXT = "ddprun-sampler 1 dataset_size=10 seed=18446744073709551615 shuffle=1 epoch=3 consumed=8"

    def sampler(self, size=10, **options):
        return ElasticSampler(size, global_batch=4, rank=0, world_size=1, **options)

    def test_pass_through_json_and_cpps_text(self):
        sampler = self.sampler()
        sampler.load_state_dict(self.TEXT)
        self.assertEqual(self.TEXT, sampler.state_text())
        for state in (json.loads(json.dumps(sampler.state_dict())), self.TEXT.encode()):
            other = self.sampler()
            other.load_state_dict(state)
            self.assertEqual(sampler.state_dict(), other.state_dict())
            self.assertEqual(next(iter(sampler)), next(iter(other)))

    def test_that_do_not_fit_change_nothing(self):
        sampler = self.sampler()
        before = sampler.state_dict()
        for state, text in (
                ({**before, "dataset_size": 11}, "of 11 samples, and this one has 10"),
                ({**before, "shuffle": False}, "shuffle=False, and this one has True"),
                ({**before, "consumed": 10}, "consumed 10 of the 10"),
                ({**before, "consumed": -1}, "consumed -1"),
                ({**before, "consumed": "1"}, "whole number, not '1'"),
                ({**before, "epoch": 2**62 + 1}, "0 to 2\\*\\*62"),
                ({**before, "version": 2}, "of version 2"),
                ({"epoch": 1}, "no state of a sampler"), (None, "no state of a sampler"), ("", "no state of a sampler"),
                (self.TEXT + "\n", "no state of a sampler"), (self.TEXT.replace("=3", "=03"), "no state of a sampler"),
                (self.TEXT.replace("=3", "=٣"), "no state of a sampler"),
                ("ddprun-sampler", "no state of a sampler"), ("ddprun-sampler 2 x=1", "of version '2'"),
                (b"\xff", "no state of a sampler")):
            with self.assertRaisesRegex(ValueError, text):
                sampler.load_state_dict(state)
        self.assertEqual(before, sampler.state_dict())


if __name__ == "__main__":
    unittest.main(verbosity=2)
