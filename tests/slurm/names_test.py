#!/usr/bin/env python3
"""Nodes whose names only Slurm knows, as in clouds: their addresses come from scontrol."""

import slurm_job

NODES = ("-N2", "--ntasks-per-node=1")


class Names(slurm_job.SlurmTestCase):
    node_name = "cloud"

    def setUp(self):
        # The resolver answers that there is no such name; without this line it may have no name server to ask.
        for i in range(1, self.hosts + 1):
            self.cluster.set_file(i, "/etc/nsswitch.conf", "hosts: files\n")
        super().setUp()

    def test_slurm_has_the_address(self):
        job = self.submit("srun " + self.line(), *NODES)
        workers = self.workers(2, f"{job}.0", world=2)
        self.assertEqual({"10.77.0.1"}, {line["environment"]["MASTER_ADDR"] for line in workers})
        self.assert_completed(job)
        self.assertIn("rendezvous at 10.77.0.1:", self.slurm.output(job))

    def test_nobody_has_it(self):
        """Without scontrol in PATH there is no program to ask."""
        job = self.submit("srun=$(command -v srun)\nPATH=/var/empty exec \"$srun\" " + self.line(), *NODES)
        self.assertEqual("FAILED", self.slurm.wait_state(job, "COMPLETED", "FAILED", timeout=60 * slurm_job.SLOW),
                         self.slurm.output(job))
        output = self.slurm.output(job)
        self.assertNotIn("Is node rank 0 up", output)
        errors = [line for line in output.splitlines() if line.startswith("ddprun: error: can't join the job at cloud1:")]
        self.assertEqual(2, len(errors), output)
        for error in errors:
            self.assertIn("can't resolve host 'cloud1'", error)
            self.assertIn("The name is from SLURM_STEP_NODELIST", error)


if __name__ == "__main__":
    slurm_job.main()
