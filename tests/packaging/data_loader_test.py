#!/usr/bin/env python3
"""ddprun.data under torch's DataLoader with worker processes, and beside torch's DistributedSampler. Runs itself with torch's
Python."""

import collections
import os
import random
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests", "support")]

from bed import TORCH_PYTHON, torch_is_there  # noqa: E402

try:
    import torch
    from torch.utils.data import DataLoader, Dataset
    from torch.utils.data.distributed import DistributedSampler
except ImportError:
    if torch_is_there():
        os.execv(TORCH_PYTHON, [TORCH_PYTHON, *sys.argv])
    torch, Dataset = None, object

from ddprun import data  # noqa: E402
from ddprun.data import ElasticSampler, KeyedPermutation  # noqa: E402

SEED = int(os.environ.get("DDPRUN_TEST_SEED", "20261125"))
SIZE, BATCH, EPOCHS = 103, 12, 2
# The world sizes of a job, one after the other, and after how many steps each ends.
WALK = ((2, 3), (3, 4), (1, 3), (4, 5), (2, 2), (3, 1))


class Numbers(Dataset):
    """The sample number i is i."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return torch.tensor(index)


class Dealt:
    """A sampler, and what DataLoader has taken from it."""

    def __init__(self, sampler):
        self.sampler, self.steps = sampler, 0

    def __iter__(self):
        for share in self.sampler:
            self.steps += 1
            yield share

    def __len__(self):
        return len(self.sampler)


def loader_of(batch_sampler, **options):
    return DataLoader(Numbers(), batch_sampler=batch_sampler, collate_fn=data.collate, **{"num_workers": 2, **options})


@unittest.skipUnless(torch is not None, f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
class UnderDataLoader(unittest.TestCase):
    def walk(self, state_of=lambda sampler, dealt: sampler.state_dict()):
        """How often each sample was learned from in EPOCHS epochs; at each fault all go on from the state, another number."""
        learned, state, ahead = collections.Counter(), None, 0
        for world, steps in (*WALK, (2, SIZE)):
            ranks = [ElasticSampler(SIZE, global_batch=BATCH, seed=SEED, rank=rank, world_size=world) for rank in range(world)]
            if state is not None:
                for sampler in ranks:
                    sampler.load_state_dict(state)
            dealt = [Dealt(sampler) for sampler in ranks]
            while steps and ranks[0].epoch < EPOCHS:
                epoch, trained = ranks[0].epoch, 0
                for counter in dealt:
                    counter.steps = 0
                for batches in zip(*map(loader_of, dealt)):
                    for batch in batches:
                        learned.update((epoch, sample) for sample in (() if batch is None else batch.tolist()))
                    for sampler in ranks:
                        sampler.commit()
                    trained += 1
                    steps -= 1
                    ahead = max(ahead, dealt[0].steps - trained)
                    if not steps:
                        break
            if ranks[0].epoch == EPOCHS:
                break
            state = state_of(ranks[0], dealt[0].steps - trained)
        return learned, ahead

    ONCE = {(epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SIZE)}

    def test_each_sample_once_an_epoch_although_workers_read_ahead(self):
        learned, ahead = self.walk()
        self.assertEqual(self.ONCE, dict(learned))
        self.assertGreaterEqual(ahead, 3)  # what is read ahead was there, and didn't count

    def test_a_state_of_what_was_dealt_to_workers_loses_samples(self):
        """Negative control: samplers that count in their own __iter__ count this."""
        def dealt(sampler, ahead):
            state = sampler.state_dict()
            return {**state, "consumed": min(SIZE - 1, state["consumed"] + ahead * BATCH)}
        learned, _ = self.walk(dealt)
        self.assertLess(sum(learned.values()), EPOCHS * SIZE)

    def test_persistent_workers_epoch_after_epoch(self):
        sampler = ElasticSampler(SIZE, global_batch=BATCH, seed=SEED, rank=0, world_size=1)
        loader = loader_of(sampler, persistent_workers=True, prefetch_factor=4)
        learned = collections.Counter()
        while sampler.epoch < EPOCHS:
            for batch in loader:
                learned.update((sampler.epoch, sample) for sample in batch.tolist())
                sampler.commit()
        self.assertEqual(self.ONCE, dict(learned))

    def test_batches_that_workers_hold_from_before_a_reform_are_refused(self):
        sampler = ElasticSampler(SIZE, global_batch=BATCH, seed=SEED, rank=0, world_size=1)
        batches = iter(loader_of(sampler))
        next(batches)
        sampler.commit()
        sampler.reform(1, 2)
        with self.assertRaisesRegex(RuntimeError, "begin a new iteration"):
            next(batches)
        with self.assertRaisesRegex(RuntimeError, "not dealt since the last reform"):
            sampler.commit()
        order = KeyedPermutation(SIZE, SEED, 0)
        self.assertEqual(order.slice(BATCH + BATCH // 2, 2 * BATCH), next(iter(loader_of(sampler))).tolist())

    def test_a_rank_without_samples_gets_none(self):
        sampler = ElasticSampler(SIZE, global_batch=SIZE - 1, rank=1, world_size=2)
        batches = loader_of(sampler)
        got = []
        for batch in batches:
            got.append(batch)
            sampler.commit()
        self.assertEqual(((SIZE - 1) // 2, None), (len(got[0]), got[1]))
        self.assertEqual(1, sampler.epoch)

    def test_a_weighted_loss_is_the_mean_over_all_ranks(self):
        """DDP averages: the mean of the ranks' gradients is that of one rank with all samples."""
        gradients = {}
        for world in (1, 2, 5):
            ranks = [ElasticSampler(7, global_batch=7, seed=SEED, rank=rank, world_size=world) for rank in range(world)]
            model = torch.ones((), requires_grad=True)
            for sampler in ranks:
                for batch in DataLoader(range(7), batch_sampler=sampler, collate_fn=data.collate):
                    loss = (model * batch).square().mean() if batch is not None else 0 * model
                    (loss * sampler.step().weight / world).backward()
            gradients[world] = model.grad.item()
        self.assertAlmostEqual(gradients[1], gradients[2], places=4)
        self.assertAlmostEqual(gradients[1], gradients[5], places=4)

    def test_many_at_once_are_those_one_by_one(self):
        """numpy's path beside Python's own."""
        rng = random.Random(SEED)
        for size in (40, 65535, 65537, 2**32 + 1, 10**12, 2**62):
            order = KeyedPermutation(size, rng.randrange(1 << 64), rng.randrange(1 << 62))
            begin = rng.randrange(size - 39)
            self.assertEqual([order[place] for place in range(begin, begin + 40)], order.slice(begin, begin + 40), size)
        with self.subTest("numpy is there"):
            self.assertIsNotNone(data._numpy())  # pylint: disable=protected-access


@unittest.skipUnless(torch is not None, f"no PyTorch at {TORCH_PYTHON}: scripts/setup installs it")
class BesideDistributedSampler(unittest.TestCase):
    """Negative control: what people write with torch's own, in the same walk."""

    def test_it_repeats_and_loses_samples(self):
        learned, epoch, done = collections.Counter(), 0, 0
        for world, steps in (*WALK, (2, SIZE)):
            while steps and epoch < EPOCHS:
                ranks = []
                for rank in range(world):
                    sampler = DistributedSampler(Numbers(), world, rank, seed=SEED)
                    sampler.set_epoch(epoch)
                    ranks.append(list(DataLoader(Numbers(), batch_size=BATCH // 3, sampler=sampler)))
                for batches in list(zip(*ranks))[done:]:  # the usual way to resume: skip the batches that were trained
                    learned.update((epoch, sample) for batch in batches for sample in batch.tolist())
                    done += 1
                    steps -= 1
                    if not steps:
                        break
                if done >= len(ranks[0]):
                    epoch, done = epoch + 1, 0
        once = UnderDataLoader.ONCE
        self.assertGreater(sum(learned[key] > 1 for key in once), SIZE // 20, "repeats")
        self.assertGreater(sum(learned[key] == 0 for key in once), SIZE // 20, "losses")


if __name__ == "__main__":
    unittest.main(verbosity=2)
