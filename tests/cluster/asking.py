"""Commands about a job of two nodes, as the job's owner types them on any host: what they may, and what a refusal says.

Each host has a folder of its own for sockets, as a real machine has.
"""

import glob
import os

import job

# `drain` names a node that isn't there: a caller that may drain gets that answer, and the job goes on.
COMMANDS = {"status": ("status",), "top": ("top",), "events": ("events",), "drain": ("drain", "nosuchnode")}
ALLOWED = {"status": (0, "job {job}: "), "top": (1, "ddprun top needs a terminal"), "events": (0, "node_joined"),
           "logs": (0, "I am a worker"), "drain": (1, "no node of the job has the id, host name or group rank 'nosuchnode'"),
           "stop": (1, "no job with the run id 'nosuchjob'")}
# What a refusal says would help.
REFUSED = {"token": "wrong or missing token of the job", "tls": "--tls_dir",
           "there": "run the command there, or start jobs with a token",
           "no job": "no job 'nosuchjob' of yours runs on this machine",
           "nobody": "cannot reach the rendezvous service at localhost:29400"}


def rows_of(matrix, protection):
    """The rows of a table for jobs with that protection: (the line, {column: word})."""
    head, *lines = matrix.strip().split("\n")
    for line in lines:
        row = dict(zip(head.split(), line.split()))
        if row["job"] == protection:
            yield line, row


class Asking(job.ClusterTestCase):
    def setUp(self):
        super().setUp()
        self.asked = 0
        self.run_id = f"job{self.bed.tag}"  # no other test's: agents of a whole machine are found in /tmp
        self.folders = {}
        for host in range(1, self.cluster.count + 1):
            folder = self.bed.path(f"n{host}")
            os.mkdir(folder)
            self.folders[host] = {"TMPDIR": folder, "XDG_RUNTIME_DIR": folder}
        self.assert_status(0, self.bed.run("certs", ["certs", self.bed.path("tls")]))

    def credentials(self, which):
        return [word for name, words in (("token", ("--token", "geheim")), ("tls", ("--tls_dir", self.bed.path("tls"))))
                if name in which for word in words]

    def start_two(self, protection, *options):
        """On hosts 1 and 2: the agents, and their workers by host."""
        agents = []
        for host in (1, 2):
            arguments = ["--nnodes", 2, "--rdzv_id", self.run_id, "--redirects", 3, "--log_dir", self.bed.path(f"logs{host}"),
                         *self.credentials(protection), *options]
            agents.append(self.bed.agent(f"agent{host}", arguments, ("print=I am a worker", "wait"), host=host,
                                         env=self.folders[host]))
        workers = self.bed.next_workers(0, 2, 2, alive=agents)
        for host in (1, 2):  # a worker is in the journal before it prints
            log, = glob.glob(os.path.join(self.bed.path(f"logs{host}"), "**", "stdout.log"), recursive=True)
            self.bed.follower.watch(log)
            self.bed.wait(lambda log=log: os.path.getsize(log) > 0, "a worker's words", alive=agents)
        return agents, {int(line["host"].removeprefix("n")): line for line in workers}

    def end(self, agents, workers):
        self.bed.finish(workers.values())
        for agent in agents:
            self.assert_status(0, agent)

    def ask(self, host, *words):
        self.asked += 1
        return self.bed.run(f"ask{self.asked}", words, host=host, env=self.folders[host])

    def check(self, row, command, comes_to, asker):
        """`asker` has come to that: "ok", or why it was refused."""
        status, text = ALLOWED[command] if comes_to == "ok" else (1, REFUSED[comes_to])
        with self.subTest(row=row, command=command):
            self.assert_status(status, asker)
            self.assertIn(text.replace("{job}", self.run_id), asker.text())
            if status == 1:
                self.assertEqual(1, asker.text().count("\n"), "one line")
