#!/usr/bin/env python3
"""A job with a token: from beyond the machine of its service nobody reads of it without."""

import job

ENDPOINT = f"n1:{job.PORT}"


class Reading(job.ClusterTestCase):
    hosts = 2

    def start_two(self, *options):
        agents, generation = self.start_all(2, "2", options=options)
        return agents, generation

    def ask(self, status, host, command, *options, endpoint=ENDPOINT, env=None):
        """The words of `ddprun command` on a host, which ends with that status."""
        self.asked = getattr(self, "asked", 0) + 1
        asker = self.bed.run(f"ask{self.asked}", [command, "--rdzv_endpoint", endpoint, *options], host=host, env=env)
        self.assert_status(status, asker)
        return asker.text()

    def test_from_another_machine_it_needs_the_token(self):
        agents, generation = self.start_two("--token", "geheim")
        for command, tells in (("status", "job job: running"), ("events", "node_joined")):
            for options in ((), ("--token", "falsch")):
                text = self.ask(1, 2, command, *options)
                self.assertIn("wrong or missing token of the job (--token_file, DDPRUN_TOKEN)", text)
                self.assertNotIn("wait", text, "nothing of what runs")
            self.assertIn(tells, self.ask(0, 2, command, "--token", "geheim"))
            self.assertIn(tells, self.ask(0, 2, command, env={"DDPRUN_TOKEN": "geheim"}))
            self.assertIn(tells, self.ask(0, 1, command, endpoint=f"127.0.0.1:{job.PORT}"), "its own machine needs none")
        self.finish(agents, generation, 2)

    def test_twin_without_a_token(self):
        agents, generation = self.start_two()
        self.assertIn("job job: running", self.ask(0, 2, "status"))
        self.assertIn("node_joined", self.ask(0, 2, "events"))
        self.finish(agents, generation, 2)


if __name__ == "__main__":
    job.main()
