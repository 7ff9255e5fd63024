#!/usr/bin/env python3
"""ZeRO in C++ Sessions: stages 1 to 3 learn what stage 0 does, in each precision; overflows, recomputing, the flat AdamW."""

import json
import math
import os
import re
import struct
import unittest

from gpu_bed import BACKEND, EXAMPLES, ON_GPU, RANKS, TEXT, GpuCase, figure

WORLD = RANKS if ON_GPU else 2
STEPS, RATE = 20, 1e-3
# A twin only keeps the check from rotting, and the tests of each stage are elsewhere (tests/worker/zero_test.cc).
STAGES = {"no": (0, 1, 2, 3), "fp16": (0, 1, 2, 3), "bf16": (0, 1, 2, 3)} if ON_GPU else \
    {"no": (0, 3), "fp16": (0, 2), "bf16": (0,)}
OVERFLOWING = (0, 1, 2, 3) if ON_GPU else (2,)
SMALL = ("--data", TEXT, "--layers", 1, "--width", 16, "--heads", 2)
PLAIN = (*SMALL, "--context_length", 16, "--steps", STEPS, "--lr_schedule", "constant", "--learning_rate", RATE)
# How far two correct trainings of 20 steps that round differently may be apart (tests/worker/examples_test.py): parameters by no
# more than 20 roundings of float32, gradients by what doubles that; and the loss moves by that times the sum of the sizes of
# 6,000 gradients, at most 80 x their norm of 1. Other batches or another seed move it by 1e-2 and more.
ROUNDING = 1.5e-3
# In fp16 and bf16 products are rounded to 2^-11 and 2^-8 of their size. Parameters that differ by 2^-24 round to the same number
# but now and then; then a gradient is off by about that part of its size, and a step of AdamW, which is as long as RATE, by as
# much of RATE. If that happened to all steps and gradients, always in one direction, it were 6.3e-3 with bf16.
BOUND = {"no": ROUNDING, "fp16": ROUNDING + STEPS * RATE * 2 ** -11 * 80, "bf16": ROUNDING + STEPS * RATE * 2 ** -8 * 80}
FIRST_SCALE = 65536  # GradScaler::Options


def apart(one, other):
    return max(abs(a - b) for a, b in zip(one, other))


def saved(folder, ending, kind):
    """The numbers that tensors with that end of their name have, in the files of the newest checkpoint; `kind`: struct's."""
    numbers = set()
    step_of = {name: int(re.search(r"-s(\d+)", name).group(1)) for name in os.listdir(folder) if name.endswith(".safetensors")}
    for name in (name for name, step in step_of.items() if step == max(step_of.values())):
        with open(os.path.join(folder, name), "rb") as source:
            size, = struct.unpack("<Q", source.read(8))
            for tensor, place in json.loads(source.read(size)).items():
                if tensor.endswith(ending):
                    source.seek(8 + size + place["data_offsets"][0])
                    numbers.update(struct.unpack(kind, source.read(8)))
    return numbers


class Zero(GpuCase):
    def begin(self, name, *options):
        """A training beside others: on a GPU most of its time is the start's."""
        return name, self.bed.run(name, [
            "--standalone", "--no_python", "--nproc_per_node", WORLD, EXAMPLES / "char_gpt", "--backend", BACKEND,
            "--journal", self.bed.path(f"{name}.journal"), *options])

    def losses(self, begun, steps=STEPS):
        """Rank 0's, once it has ended well."""
        name, agent = begun
        self.finish_job(agent)
        with open(self.bed.path(f"{name}.journal"), encoding="utf-8") as lines:
            losses = [json.loads(line)["loss"] for line in lines]
        self.assertEqual(steps, len(losses), name)
        self.assertTrue(all(map(math.isfinite, losses)), f"{name}: {losses}")
        return losses

    def trained(self, *runs):
        """The losses of each run (name, options…); they run side by side where there is room."""
        if ON_GPU:
            return [self.losses(begun) for begun in [self.begin(*run) for run in runs]]
        return [self.losses(self.begin(*run)) for run in runs]

    def test_stages_learn_alike(self):
        """Can fail: another seed's losses are apart by more than any bound."""
        plain = {}
        for precision, stages in STAGES.items():
            options = (*PLAIN, "--seed", 1, "--mixed_precision", precision)
            plain[precision], *others = self.trained(
                *[(f"{precision}_zero_{stage}", *options, "--zero_stage", stage) for stage in stages])
            for stage, losses in zip(stages[1:], others):
                with self.subTest(precision=precision, stage=stage):
                    figure(f"{precision}_zero_{stage}_losses_apart", apart(plain[precision], losses) * 1e6, "e-6")
                    self.assertLessEqual(apart(plain[precision], losses), BOUND[precision])
        seed, = self.trained(("seed", *PLAIN, "--seed", 2))
        self.assertGreater(apart(plain["no"], seed), max(BOUND.values()))
        self.assertNotEqual(plain["no"], plain["bf16"])
        self.assertNotEqual(plain["no"], plain["fp16"])

    def test_recomputed_activations(self):
        """The same arithmetic in the same order on the CPU; a GPU adds an embedding's gradients up as they come."""
        stage = ("--seed", 1, "--zero_stage", 2)
        plain, recomputed = self.trained(("plain", *PLAIN, *stage), ("recomputed", *PLAIN, *stage, "--gradient_checkpointing"))
        figure("recomputed_losses_apart", apart(plain, recomputed) * 1e6, "e-6")
        self.assertLessEqual(apart(plain, recomputed), ROUNDING if ON_GPU else 0)

    def test_overflows_are_left_out(self):
        """With one character a rank, the gradient of the logits is nearly the scale itself, and its products overflow fp16: such
        steps are left out, and the scale is halved. Can fail: with an infinite gradient in it, AdamW's next losses are NaN."""
        begun = []
        for stage in OVERFLOWING:
            begun.append(self.begin(
                f"overflow{stage}", *SMALL, "--context_length", 1, "--batch_size", 1, "--steps", STEPS, "--seed", 1,
                "--mixed_precision", "fp16", "--zero_stage", stage, "--output_dir", self.bed.path(f"out{stage}")))
            if not ON_GPU:
                self.losses(begun[-1])
        for stage, run in zip(OVERFLOWING, begun):
            with self.subTest(stage=stage):
                self.losses(run)
                folder = self.bed.path(f"out{stage}/checkpoints")
                scale, = saved(folder, "extra.scaler.scale", "<d")
                halved = math.log2(FIRST_SCALE / scale)
                figure(f"overflow_zero_{stage}_steps_left_out", halved, "")
                self.assertGreaterEqual(halved, 1)
                self.assertEqual({STEPS - halved}, saved(folder, ".step", "<q"))
                self.assertLess(halved, STEPS / 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
