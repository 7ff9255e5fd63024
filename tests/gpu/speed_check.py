#!/usr/bin/env python3
"""Beside torchrun and plain PyTorch on the same machine, in turns: a start, a killed worker, a GPT's steps, checkpoints.

Figures are ratios, and what they are made of. Nothing fails for being slow but what is slower than what it stands beside by
more than a share that no noise makes (SLOWER), and that on a GPU alone, where nothing else runs.
"""

import json
import os
import signal
import statistics
import time
import unittest

from gpu_bed import BACKEND, DEVICE, EXAMPLES, ON_GPU, PATIENCE, PYTHON, RANKS, ROOT, TEXT, GpuCase, figure

WORLD = RANKS if ON_GPU else 1
TURNS = 3 if ON_GPU else 1
SLOWER = 1.5
WARM_UP = 10  # steps
STEPS = 110 if ON_GPU else 20
# Ten million parameters: a step takes longer than the host's work for it.
MODEL = {"--layers": 6, "--width": 384, "--heads": 6, "--context_length": 256, "--batch_size": 32} if ON_GPU else {
    "--layers": 1, "--width": 16, "--heads": 2, "--context_length": 16, "--batch_size": 2}


class Speed(GpuCase):
    def begin(self, launcher, name, *options, steps=1, checkpoint=None, pause=0):
        """A job of programs/train.py under `launcher`, which has lines of its own in the journal: those of its first line on."""
        self.bed.follower.refresh()
        first = len(self.bed.journal.lines)
        script = [self.program("train.py"), "--device", DEVICE, "--backend", BACKEND, "--journal", self.bed.journal.path,
                  "--steps", steps, "--pause", pause, *(("--checkpoint", checkpoint) if checkpoint else ())]
        words = ["--nproc_per_node", WORLD, *options, *script]
        if launcher == "torchrun":
            # As with --standalone, but that waits for good where localhost, or the host's own name, is no name.
            place = ["--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0", "--local_addr", "127.0.0.1"]
            words = ["--nnodes", 1, *place, *words]
            job = self.bed.start_process(name, [str(word) for word in (PYTHON, "-m", "torch.distributed.run", *words)],
                                         output=self.bed.path(name + ".out"), env=self.bed.environment)
        else:
            job = self.bed.run(name, ["--standalone", *words])
        return job, first

    def lines_since(self, first, **fields):
        self.bed.follower.refresh()
        return [line for line in self.bed.journal.lines[first:]
                if all(line.get(name) == value for name, value in fields.items())]

    def assert_not_slower(self, name, ours, theirs):
        """Times: figures of both, and theirs over ours."""
        figure(f"{name}_ddprun", ours, "s")
        figure(f"{name}_peer", theirs, "s")
        figure(f"{name}_times_as_fast", theirs / ours, "")
        if ON_GPU:
            self.assertLess(ours, SLOWER * theirs, name)

    def test_start(self):
        """From exec to the first step of all ranks."""
        seconds = {"ddprun": [], "torchrun": []}
        for turn in range(TURNS):
            for launcher, times in seconds.items():
                job, first = self.begin(launcher, f"{launcher}{turn}")
                self.finish_job(job)
                times.append(max(line["t"] for line in self.lines_since(first, event="step")) - job.started)
        self.assert_not_slower("start", *map(statistics.median, seconds.values()))

    def test_recovery(self):
        """From a worker's kill -9 to the next step; with torchrun, both started anew from the checkpoint of each step."""
        seconds = {}
        for launcher in ("ddprun", "torchrun"):
            job, first = self.begin(launcher, launcher, "--max_restarts", 3, steps=1000000, pause=0.02,
                                    checkpoint=self.bed.path(launcher))
            begun = self.bed.wait(lambda begins=first: [line for line in self.lines_since(begins, event="step")
                                                        if line["step"] >= 5], "step 5", PATIENCE, [job])
            killed = max(self.lines_since(first, event="begun"), key=lambda line: line["rank"])
            self.assertTrue(begun)
            old = {line["pid"] for line in self.lines_since(first, event="begun")}
            moment = time.monotonic()
            os.kill(killed["pid"], signal.SIGKILL)
            after = self.bed.wait(lambda begins=first, before=old: [
                line for line in self.lines_since(begins, event="step") if line["pid"] not in before], "a later step", PATIENCE,
                [job])
            seconds[launcher] = after[0]["t"] - moment
            job.signal(signal.SIGTERM)
            job.wait(PATIENCE)
        self.assert_not_slower("recovery", seconds["ddprun"], seconds["torchrun"])

    def samples_per_second(self, name, command, *options):
        journal = self.bed.path(f"{name}.journal")
        model = [word for pair in MODEL.items() for word in pair]
        job = self.bed.run(name, ["--standalone", "--nproc_per_node", 1, *options, *command, "--data", TEXT, "--backend", BACKEND,
                                  "--steps", STEPS, *model, "--journal", journal])
        self.finish_job(job)
        with open(journal, encoding="utf-8") as source:
            lines = [json.loads(line) for line in source]
        seconds = lines[-1]["t"] - lines[WARM_UP]["t"]
        return MODEL["--batch_size"] * (len(lines) - 1 - WARM_UP) / seconds, [line["loss"] for line in lines]

    def test_gpt(self):
        """examples/char_gpt in C++ beside its twin in Python, one rank: as many samples a second, and the same losses."""
        python = [str(ROOT / "bench/worker/char_gpt.py"), "--device", DEVICE]
        ours, losses = self.samples_per_second("cpp", [EXAMPLES / "char_gpt"], "--no_python")
        theirs, of_python = self.samples_per_second("python", python)
        self.assertLess(abs(losses[0] - of_python[0]), 0.5, "the first loss, of other random weights")
        figure("gpt_cpp", ours, "samples/s")
        figure("gpt_python", theirs, "samples/s")
        figure("gpt_times_as_fast", ours / theirs, "")
        if ON_GPU:
            self.assertGreater(ours, theirs / SLOWER)

    @unittest.skipUnless((EXAMPLES / "worker_bench_checkpoint").exists(), "without -DDDPRUN_BENCH=ON there is no program for it")
    def test_checkpoint(self):
        """256 MiB of the device's memory: how long a save in the background keeps training, beside one copy to the host's."""
        os.mkdir(self.bed.path("saved"))
        program = [EXAMPLES / "worker_bench_checkpoint", self.bed.path("saved"), 3 if ON_GPU else 1, BACKEND]
        job = self.bed.run("checkpoint", ["--standalone", "--no_python", "--nproc_per_node", 1, *program])
        self.finish_job(job)
        told = json.loads(next(line for line in job.text().splitlines() if line.startswith("{")))
        for name in ("copy", "stall", "save", "restore"):
            figure(f"checkpoint_{name}", told[name], "s")
        figure("checkpoint_gigabytes_per_second", 2 ** 28 / told["stall"] / 1e9, "GB/s")
        figure("checkpoint_stall_over_copy", told["stall"] / told["copy"], "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
