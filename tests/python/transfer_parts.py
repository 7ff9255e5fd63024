#!/usr/bin/env python3
"""Copies of states and batches that a repeated step needs. elastic_test.py runs this file."""

import collections
import os
import sys
import unittest
import unittest.mock

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")]

import torch  # noqa: E402
from ddprun.elastic import parts, transfer  # noqa: E402


class Trees(unittest.TestCase):
    def test_nothing_is_shared(self):
        state = {"milestones": collections.Counter([3, 3]), "window": collections.deque([1], 2), "seen": {1},
                 "tensor": torch.ones(2)}
        copied = transfer.copied(state)
        state["milestones"][4] = 1
        state["window"].append(2)
        state["seen"].add(2)
        state["tensor"].zero_()
        elements, values = list(copied["milestones"].elements()), copied["tensor"].tolist()
        self.assertEqual(([3, 3], [1], {1}, [1.0, 1.0]), (elements, list(copied["window"]), copied["seen"], values))


class Repeated(unittest.TestCase):
    """What a repeated step finds."""

    def test_a_batch_that_was_taken_apart_and_a_scaler(self):
        batch = {"a": [torch.ones(1)], "b": collections.UserDict(c=torch.ones(1))}
        kept = transfer.refolded(batch)
        batch.pop("a").clear()
        del batch["b"]["c"]
        self.assertEqual(2, len(transfer.tensors_in(kept)))
        scaler, parameter = torch.amp.GradScaler("cpu"), torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler.scale(parameter.sum()).backward()
        scaler.unscale_(optimizer)
        parts.Parts.begin_scaling(unittest.mock.Mock(scalers=[scaler]))
        scaler.unscale_(optimizer)


if __name__ == "__main__":
    unittest.main(verbosity=2)
