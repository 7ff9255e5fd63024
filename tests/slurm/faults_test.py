#!/usr/bin/env python3
"""A node that loses its power while a job of Slurm trains: the job shrinks, or is requeued, and finishes."""

import os

import slurm_job

ELASTIC = "--nnodes 1:2"
PATIENT = dict(step_ms=50, steps=200)


class Faults(slurm_job.SlurmTestCase):
    def lose_node(self, job, node=2):
        """Kills it when both nodes train."""
        self.workers(2, f"{job}.0", world=2)
        self.bed.wait(lambda: self.bed.journal.find("step", step=5), "step 5", 30 * slurm_job.SLOW)
        self.slurm.kill_node(node)

    def test_an_elastic_job_shrinks(self):
        status = os.path.join(self.bed.folder, "status")  # from Slurm 23.02 on srun fails after the loss of a node
        job = self.submit(f"export DDPRUN_SLURM_STATUS_FILE={status}\nsrun --no-kill " + self.line(ELASTIC, **PATIENT) +
                          f"; [ $? -le 1 ] && [ $(cat {status}) = 0 ]", "-N2", "--ntasks-per-node=1", "--no-kill")
        self.lose_node(job)
        self.assertEqual(["n1"], [line["host"] for line in self.workers(1, f"{job}.0", world=1)])
        self.assert_completed(job)
        self.assertIn(self.slurm.fact(job, "Restarts"), ("0", None))
        self.bed.follower.refresh()
        steps = {line["step"] for line in self.bed.journal.find("step", rank=0)}
        self.assertEqual(set(range(200)), steps)

    def test_an_elastic_job_without_its_first_node_is_requeued_by_the_others(self):
        options = ELASTIC + " --service_loss_timeout 3s"
        job = self.submit("export DDPRUN_SLURM_REQUEUE=1\nsrun --no-kill " + self.line(options, **PATIENT), "-N2",
                          "--ntasks-per-node=1", "--no-kill", "--requeue")
        self.lose_node(job, 1)
        self.slurm.until(lambda: self.slurm.fact(job, "Restarts") == "1", "the requeue", 90 * slurm_job.SLOW)
        workers = self.workers(2, f"{job}.0-restart1", world=2, timeout=60 * slurm_job.SLOW)
        self.assertEqual({"n2", "n3"}, {line["host"] for line in workers})
        self.assert_completed(job)

    def test_without_no_kill_slurm_ends_the_step(self):
        """Negative control."""
        job = self.submit("srun " + self.line(ELASTIC, step_ms=50, steps=2000), "-N2", "--ntasks-per-node=1", "--no-requeue")
        self.lose_node(job)
        self.assertEqual("NODE_FAIL", self.slurm.wait_state(job, "NODE_FAIL", "COMPLETED", "FAILED", timeout=90 * slurm_job.SLOW))

    def test_a_job_of_a_fixed_size_is_requeued(self):
        job = self.submit("srun " + self.line(**PATIENT), "-N2", "--ntasks-per-node=1", "--requeue")
        self.lose_node(job)
        self.slurm.until(lambda: self.slurm.fact(job, "Restarts") == "1", "the requeue", 90)
        workers = self.workers(2, f"{job}.0-restart1", world=2, timeout=60 * slurm_job.SLOW)
        self.assertEqual({"n1", "n3"}, {line["host"] for line in workers})
        self.assertLess(4, min(line["first"] for line in workers), "it began anew")
        self.assert_completed(job)


if __name__ == "__main__":
    slurm_job.main()
