#!/usr/bin/env python3
"""The batch scripts of ddprun slurm: submitted, stopped before their time is over, requeued."""

import os
import shutil
import subprocess

import slurm_job
from bed import DDPRUN


class Scripts(slurm_job.SlurmTestCase):
    def ddprun_slurm(self, *words):
        """ddprun slurm with ddprun in PATH, as the script wants it."""
        folder = os.path.join(self.bed.folder, "bin")
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(folder, "ddprun")):
            os.symlink(DDPRUN, os.path.join(folder, "ddprun"))
        environment = {**self.bed.environment, **self.slurm.environment, "PATH": f"{folder}:{os.environ['PATH']}",
                       "PYTHON_EXEC": self.bed.environment["PYTHON_EXEC"]}
        command = self.cluster.command(4, [DDPRUN, "slurm", *words])
        result = subprocess.run(command, env=environment, cwd=self.slurm.folder, capture_output=True, text=True, check=False)
        self.assertEqual(0, result.returncode, result.stderr)
        return result.stdout

    def training(self, step_ms, steps):
        return [slurm_job.TRAINING, self.bed.journal.path, self.bed.folder, str(step_ms), str(steps)]

    def test_submits_and_survives_a_node(self):
        job = self.ddprun_slurm("--submit", "-N2", "--gpus-per-node=1", "--", "--nnodes", "1:2",
                                *self.training(50, 150)).split()[-1]
        self.assertEqual("saving_worker", self.slurm.fact(job, "JobName"))
        self.workers(2, f"{job}.0", world=2)
        self.slurm.kill_node(2)
        self.workers(1, f"{job}.0", world=1)
        self.assert_completed(job)

    def test_is_requeued_before_its_time_is_over(self):
        job = self.ddprun_slurm("--submit", "-N2", "--time=1", "--", "--preempt_deadline", "50", "--grace", "2",
                                *self.training(200, 100)).split()[-1]
        first = self.workers(2, f"{job}.0")
        self.assertEqual({0}, {line["first"] for line in first})
        self.slurm.until(lambda: self.slurm.fact(job, "Restarts") == "1", "the requeue", 40)
        second = self.workers(2, f"{job}.0-restart1", timeout=60 * slurm_job.SLOW)
        self.assertLess(0, min(line["first"] for line in second))
        self.assertIn("left", self.slurm.output(job))

    def test_a_job_without_progress_is_not_requeued_for_ever(self):
        text = self.ddprun_slurm("-N1", "--time=1", "--comment=of mine", "--", "--preempt_deadline", "55", "--grace", "1",
                                 "--no_python", "sleep", "1000")
        text = text.replace("DDPRUN_SLURM_GIVE_UP_AFTER=5", "DDPRUN_SLURM_GIVE_UP_AFTER=2")
        path = os.path.join(self.bed.folder, "bin")
        job = self.slurm.submit(text, env={**self.bed.environment, "PATH": f"{path}:{os.environ['PATH']}"})
        self.slurm.until(lambda: self.slurm.fact(job, "Restarts") == "1", "the requeue", 60 * slurm_job.SLOW)
        self.assertEqual("FAILED", self.slurm.wait_state(job, "COMPLETED", "FAILED", timeout=90 * slurm_job.SLOW))
        self.assertEqual("93:0", self.slurm.fact(job, "ExitCode"))
        self.assertEqual("1", self.slurm.fact(job, "Restarts"))
        self.assertIn(f"error: job {job} isn't requeued any more: of 2 runs in a row none lasted 1m",
                      self.slurm.output(job))
        self.assertIn("Comment=of mine ddprun:no_progress=2", self.slurm.ask("scontrol", "show", "job", job))

    def test_a_printed_script_is_clean(self):
        text = self.ddprun_slurm("-N2", "--comment=two words", "--", "--nnodes", "1:2", *self.training(10, 10))
        path = self.bed.write("script.sh", text)
        if shutil.which("shellcheck") is None:
            self.skipTest("shellcheck is not installed")
        result = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
        self.assertEqual("", result.stdout)


if __name__ == "__main__":
    slurm_job.main()
