#!/usr/bin/env python3
"""What ddprun finds out under srun, so that nothing has to be named."""

import os
import shlex

import slurm_job
from bed import DDPRUN


class Steps(slurm_job.SlurmTestCase):
    def test_one_task_a_node(self):
        job = self.submit("srun " + self.line(), "-N2", "--ntasks-per-node=1", "--gpus-per-node=2", "--cpus-per-task=4")
        workers = self.workers(4, f"{job}.0")
        self.assertEqual([0, 1, 2, 3], [line["rank"] for line in workers])
        self.assertEqual(["n1", "n1", "n2", "n2"], [line["host"] for line in workers])
        self.assertEqual({"n1"}, {line["environment"]["MASTER_ADDR"] for line in workers})
        self.assert_completed(job)
        output = self.slurm.output(job)
        self.assertEqual(1, output.count("Slurm: job"), output)
        self.assertIn(f"Slurm: job {job}.0, 2 nodes of n1,n2, 2 workers on each", output)

    def test_one_task_a_worker(self):
        job = self.submit("srun " + self.line(), "-N2", "--ntasks-per-node=2")
        workers = self.workers(4, f"{job}.0")
        self.assertEqual({4}, {line["world"] for line in workers})
        self.assertEqual(["0", "1", "0", "1"], [line["environment"]["LOCAL_RANK"] for line in workers])
        self.assert_completed(job)
        self.assertEqual(2, len(self.bed.events.find("agent_start")), "more than one launched on a node")

    def test_uneven_tasks(self):
        job = self.submit("srun " + self.line(), "-N2", "-n3")
        self.assertEqual(["n1", "n1", "n2"], [line["host"] for line in self.workers(3, f"{job}.0", world=3)])
        self.assert_completed(job)

    def test_without_detection_each_task_is_a_job(self):
        job = self.submit("srun " + self.line("--no_slurm"), "-N2", "--ntasks-per-node=1")
        workers = self.workers(2, None)
        self.assertEqual({1}, {line["world"] for line in workers})
        self.assertEqual(2, len({line["run"] for line in workers}), "the two jobs share a name")
        self.assert_completed(job)
        self.assertNotIn("Slurm: job", self.slurm.output(job))

    def test_two_steps_side_by_side(self):
        half = "srun --exact -N2 -n2 --ntasks-per-node=1 -c1 "
        job = self.submit(f"{half}{self.line()} &\n{half}{self.line()} &\nwait", "-N2", "--ntasks-per-node=2")
        for step in (0, 1):
            self.assertEqual({2}, {line["world"] for line in self.workers(2, f"{job}.{step}")})
        self.assert_completed(job)

    def test_heterogeneous_step(self):
        # Without -n4 the srun of Slurm 23.02 and later gives the second component as many tasks as the first one has.
        job = self.submit("#SBATCH -N1 -n1\n#SBATCH hetjob\n#SBATCH -N2 -n4 --ntasks-per-node=2\n"
                          "srun --het-group=0,1 " + self.line())
        workers = self.workers(5, f"{job}.0")
        self.assertEqual({5}, {line["world"] for line in workers})
        self.assertEqual(["n1", "n2", "n2", "n3", "n3"], [line["host"] for line in workers])
        self.assert_completed(job)

    def test_a_script_of_one_node(self):
        job = self.submit(self.line(), "-N1", "--gpus-per-node=2", "--cpus-per-task=4")
        self.assertEqual({2}, {line["world"] for line in self.workers(2, job)})
        self.assert_completed(job)

    def test_a_spare_that_comes_after_the_end_leaves_at_once(self):
        gate = os.path.join(self.bed.folder, "gate")
        os.mkfifo(gate)
        late = shlex.quote(f"[ $SLURM_PROCID -lt 2 ] || read -r go < {gate}; exec \"$@\"")
        job = self.submit(f"srun bash -c {late} late " + self.line("--nnodes 2"), "-N3", "--ntasks-per-node=1")
        self.workers(2, f"{job}.0", world=2)
        self.bed.wait(lambda: self.bed.events.find("verdict"), "the verdict", 30 * slurm_job.SLOW)
        with open(gate, "w", encoding="utf-8") as sink:
            sink.write("go\n")
        self.assert_completed(job, timeout=30)
        self.bed.wait(lambda: self.bed.events.find("agent_start")[2:], "three agents")
        self.assertIn("the job had succeeded when this node came", self.slurm.output(job))

    def test_doctor_gives_one_report(self):
        job = self.submit(f"srun {DDPRUN} doctor", "-N2", "--ntasks-per-node=1")
        self.slurm.wait_state(job, "COMPLETED", "FAILED", timeout=60 * slurm_job.SLOW)
        output = self.slurm.output(job)
        self.assertEqual(1, output.count("ddprun doctor on 2 nodes: n1, n2"), output)

    def test_a_failed_worker_fails_the_job(self):
        job = self.submit("srun " + self.line("--nnodes 2 --no_python").replace(slurm_job.TRAINING, "/bin/false"), "-N2",
                          "--ntasks-per-node=2")
        self.assertEqual("FAILED", self.slurm.wait_state(job, "COMPLETED", "FAILED"), self.slurm.output(job))


if __name__ == "__main__":
    slurm_job.main()
