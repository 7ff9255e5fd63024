#!/usr/bin/env python3
"""A plain DDP script and C++ Sessions, with one rank and with several on the one GPU; both learn what they learn on the CPU."""

import json
import shutil
import unittest
from pathlib import Path

from gpu_bed import BACKEND, DEVICE, DIGITS, EXAMPLES, INSTALLED, ON_GPU, RANKS, ROOT, TEXT, GpuCase, figure

STEPS = 20
WORLDS = (1, RANKS) if ON_GPU else (2,)  # a twin only keeps the check from rotting
# Losses of two correct trainings of 20 steps that round differently (tests/worker/examples_test.py, ROUNDING); TF32 is off by
# default for products. Another seed moves them by 1e-2 and more.
ROUNDING = 1.5e-3
SESSION = ("--steps", STEPS, "--lr_schedule", "constant", "--seed", 1)
PROGRAMS = {"digits": ("--data", DIGITS), "char_gpt": ("--data", TEXT, "--layers", 1, "--width", 16, "--heads", 2,
                                                         "--context_length", 16)}


class Train(GpuCase):
    def script_losses(self, ranks, name, device=DEVICE, backend=BACKEND):
        """Rank 0's losses of programs/train.py, and what it took to begin."""
        began = len(self.bed.journal.find("begun", rank=0))
        agent = self.launch(ranks, (), "train.py", "--device", device, "--backend", backend, "--journal", self.bed.journal.path,
                            "--steps", STEPS, name=name)
        self.finish_job(agent)
        self.bed.follower.refresh()
        begun = self.bed.journal.find("begun", rank=0)[began]
        self.assertEqual(("cuda:0" if device == "cuda" else device, backend), (begun["device"], begun["backend"]))
        return [line["loss"] for line in self.steps(pid=begun["pid"])], begun

    def session_losses(self, program, ranks, backend):
        """Rank 0's losses of an example, and what it has printed."""
        journal = self.bed.path(f"{program}.{ranks}.{backend}.{len(self.bed.agents)}")
        agent = self.bed.run(f"{program}{len(self.bed.agents)}", [
            "--standalone", "--no_python", "--nproc_per_node", ranks, EXAMPLES / program, *SESSION,
            *PROGRAMS[program], "--backend", backend, "--journal", journal])
        self.finish_job(agent)
        with open(journal, encoding="utf-8") as lines:
            return [json.loads(line)["loss"] for line in lines], agent.text()

    def assert_near(self, what, one, other):
        self.assertEqual(STEPS, len(one))
        self.assertEqual(STEPS, len(other))
        apart = max(abs(a - b) for a, b in zip(one, other))
        figure(f"{what}_losses_apart", apart, "")
        self.assertLessEqual(apart, ROUNDING)

    def test_a_script(self):
        for ranks in WORLDS:
            with self.subTest(ranks=ranks):
                losses, begun = self.script_losses(ranks, f"there{ranks}")
                figure(f"script_{ranks}_ranks_context", begun["context"], "s")
                figure(f"script_{ranks}_ranks_group", begun["group"], "s")
                self.assert_near(f"script_{ranks}_ranks", losses, self.script_losses(ranks, f"cpu{ranks}", "cpu", "gloo")[0])
                self.assertLess(losses[-1], losses[0])

    def test_sessions(self):
        for program in PROGRAMS:
            for ranks in WORLDS:
                with self.subTest(program=program, ranks=ranks):
                    losses, _ = self.session_losses(program, ranks, BACKEND)
                    self.assert_near(f"{program}_{ranks}_ranks", losses, self.session_losses(program, ranks, "gloo")[0])

    def test_auto_takes_what_the_machine_has(self):
        """NCCL with a GPU, shared memory without one; the line of the start says which and why."""
        _, text = self.session_losses("digits", 2, "auto")
        self.assertRegex(text, r"backend: nccl" if ON_GPU else r"backend: shm")

    @unittest.skipUnless(INSTALLED.exists(), "only a bundle has a program of the installed package")
    def test_the_installed_package_finds_its_plug_in(self):
        prefix = Path(json.loads((ROOT / "about.json").read_text(encoding="utf-8"))["prefix"])  # where it was installed
        shutil.copytree(INSTALLED / "plugins", prefix / "lib" / "ddprun", dirs_exist_ok=True)
        self.addCleanup(prefix.parent.rmdir)
        self.addCleanup(shutil.rmtree, prefix)
        self.bed.environment.pop("DDPRUN_NCCL_PLUGIN", None)
        libraries = f"{INSTALLED / 'lib'}:{self.bed.environment['LD_LIBRARY_PATH']}"
        # For the program alone: the launcher and others have their own.
        agent = self.bed.run("installed", ["--standalone", "--no_python", "--nproc_per_node", 2, "env",
                                           f"LD_LIBRARY_PATH={libraries}", INSTALLED / "train", "--steps", STEPS])
        self.finish_job(agent)
        self.assertRegex(agent.text(), r"train: 2 workers over " + ("nccl" if ON_GPU else "shm"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
