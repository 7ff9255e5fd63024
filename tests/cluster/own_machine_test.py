#!/usr/bin/env python3
"""Commands about a job of two nodes, typed on the service's machine, on the other node, and elsewhere.

Each machine has a folder of its own for sockets, as real ones have. What runs on a machine is asked there by any name of
that machine, and its owner needs neither token nor certificate; what runs elsewhere is asked as strangers are.
"""

import os

import job

ENDPOINT = f"n1:{job.PORT}"
NAMES = {"none": (), **{name: ("--rdzv_endpoint", endpoint) for name, endpoint in (
    ("localhost", f"localhost:{job.PORT}"), ("name", ENDPOINT), ("IPv4", f"10.77.0.1:{job.PORT}"),
    ("IPv6", f"[fd00:77::1]:{job.PORT}"))}}
PLACES = {"service": 1, "node": 2, "elsewhere": 3}
# `drain` and `stop` name what isn't there: whoever may use them hears so, and the job goes on.
COMMANDS = {"status": ("status",), "top": ("top",), "events": ("events",),
            "logs0": ("logs", "rank0"), "logs1": ("logs", "rank1"),
            "drain": ("drain", "nosuchnode"), "stop": ("stop", "--rdzv_id", "nosuchjob")}
ALLOWED = {"status": (0, "job job: running"), "top": (1, "ddprun top needs a terminal"), "events": (0, "node_joined"),
           "logs0": (0, "I am a worker"), "logs1": (0, "I am a worker"),
           "drain": (1, "no node of the job has the id, host name or group rank 'nosuchnode'"),
           "stop": (1, "no job with the run id 'nosuchjob'")}
# What a refusal says would help.
REFUSED = {"token": "wrong or missing token of the job", "tls": "--tls_dir",
           "there": "run the command there, or start jobs with a token",
           "no job": "no job 'nosuchjob' of yours runs on this machine",
           "nobody": "cannot reach the rendezvous service at localhost:29400"}
# job: what protects it. given: the credentials of who asks. at: names of the service's machine; "*" = all but "localhost".
MATRIX = """
job        given      place      at          status  top     events  logs0   logs1   drain   stop
-          -          service    *           ok      ok      ok      ok      there   ok      ok
-          -          service    localhost   ok      ok      ok      ok      there   ok      ok
-          -          node       *           ok      ok      ok      there   ok      there   there
-          -          node       localhost   nobody  nobody  nobody  nobody  ok      nobody  nobody
-          -          elsewhere  *           ok      ok      ok      there   there   there   there
token      -          service    *           ok      ok      ok      ok      token   ok      ok
token      -          service    localhost   ok      ok      ok      ok      token   ok      ok
token      -          node       *           token   token   token   token   ok      token   token
token      -          node       localhost   nobody  nobody  nobody  nobody  ok      nobody  nobody
token      -          elsewhere  *           token   token   token   token   token   token   token
token      token      service    *           ok      ok      ok      ok      ok      ok      ok
token      token      service    localhost   ok      ok      ok      ok      ok      ok      ok
token      token      node       *           ok      ok      ok      ok      ok      ok      ok
token      token      node       localhost   nobody  nobody  nobody  nobody  ok      nobody  nobody
token      token      elsewhere  *           ok      ok      ok      ok      ok      ok      ok
tls        -          service    *           ok      ok      ok      ok      tls     ok      ok
tls        -          service    localhost   ok      ok      ok      ok      tls     ok      ok
tls        -          node       *           tls     tls     tls     tls     ok      tls     tls
tls        -          elsewhere  *           tls     tls     tls     tls     tls     tls     tls
tls        tls        service    *           ok      ok      ok      ok      there   ok      ok
tls        tls        node       *           ok      ok      ok      there   ok      there   there
tls        tls        elsewhere  *           ok      ok      ok      there   there   there   there
token+tls  -          service    *           ok      ok      ok      ok      tls     ok      ok
token+tls  -          node       *           tls     tls     tls     tls     ok      tls     tls
token+tls  tls        node       *           token   token   token   token   ok      token   token
token+tls  tls        elsewhere  *           token   token   token   token   token   token   token
token+tls  token+tls  service    *           ok      ok      ok      ok      ok      ok      ok
token+tls  token+tls  node       *           ok      ok      ok      ok      ok      ok      ok
token+tls  token+tls  elsewhere  *           ok      ok      ok      ok      ok      ok      ok
"""


def rows(protection):
    """(row as it is written, what is given, place, name, {command: what it comes to}) of the jobs with that protection."""
    head, *lines = MATRIX.strip().split("\n")
    for line in lines:
        row = dict(zip(head.split(), line.split()))
        if row["job"] != protection:
            continue
        # Elsewhere no agent knows the service.
        names = [row["at"]] if row["at"] != "*" else [
            name for name in NAMES if name != "localhost" and (name != "none" or row["place"] != "elsewhere")]
        for name in names:
            outcomes = {command: row[command] for command in COMMANDS}
            if name == "none" and row["place"] == "node":
                outcomes["stop"] = "no job"  # nothing says where it would be
            yield f"{line} by {name}", row["given"], row["place"], name, outcomes


class OwnMachine(job.ClusterTestCase):
    hosts = 3

    def setUp(self):
        super().setUp()
        self.folders = {}
        for host in PLACES.values():
            folder = self.bed.path(f"n{host}")
            os.mkdir(folder)
            self.folders[host] = {"TMPDIR": folder, "XDG_RUNTIME_DIR": folder}
        made = self.bed.run("certs", ["certs", self.bed.path("tls")])
        self.assert_status(0, made)

    def credentials(self, which):
        return [word for name, words in (("token", ("--token", "geheim")), ("tls", ("--tls_dir", self.bed.path("tls"))))
                if name in which for word in words]

    def start_two(self, protection, *options):
        agents = []
        for host in (1, 2):
            arguments = ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", ENDPOINT, "--rdzv_id", "job",
                         "--redirects", 3, "--log_dir", self.bed.path(f"logs{host}"), *self.credentials(protection), *options]
            agents.append(self.bed.agent(f"agent{host}", arguments, ("print=I am a worker", "wait"), host=host,
                                         env=self.folders[host]))
        return agents, self.bed.next_workers(0, 2, 2, alive=agents)

    def ask(self, place, *words):
        self.asked = getattr(self, "asked", 0) + 1
        host = PLACES[place]
        return self.bed.run(f"ask{self.asked}", words, host=host, env=self.folders[host])

    def check(self, row, command, comes_to, asker):
        status, text = ALLOWED[command] if comes_to == "ok" else (1, REFUSED[comes_to])
        with self.subTest(row=row, command=command):
            self.assert_status(status, asker)
            self.assertIn(text, asker.text())
            if status == 1:
                self.assertEqual(1, asker.text().count("\n"), "one line")

    def check_rows(self, protection):
        agents, workers = self.start_two(protection)
        for row, given, place, name, outcomes in rows(protection):
            askers = {command: self.ask(place, *words, *NAMES[name], *self.credentials(given),
                                        *(() if command == "stop" else ("--rdzv_id", "job")))
                      for command, words in COMMANDS.items()}
            for command, comes_to in outcomes.items():
                self.check(row, command, comes_to, askers[command])
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)

    def test_a_job_that_trusts_its_network(self):
        self.check_rows("-")

    def test_a_job_with_a_token(self):
        self.check_rows("token")

    def test_a_job_with_tls(self):
        self.check_rows("tls")

    def test_a_job_with_both(self):
        self.check_rows("token+tls")

    def test_the_owner_drains_and_stops_by_the_hosts_own_name(self):
        """For real, and without token and certificate; one node is enough, so the job goes on without the drained one."""
        agents, _ = self.start_two("token+tls", "--nnodes", "1:2")
        drained = self.ask("service", "drain", "n2", "--rdzv_endpoint", ENDPOINT)
        self.assert_status(0, drained)
        self.assertIn("left", drained.text())
        self.assert_status(75, agents[1])
        stopped = self.ask("service", "stop", "--rdzv_endpoint", ENDPOINT)
        self.assert_status(0, stopped)
        self.assertIn("ended job 'job' (", stopped.text())
        self.assertIn(f"at {ENDPOINT}", stopped.text(), "the name that was typed, not the socket")
        self.assert_status(1, agents[0])

    def test_an_agent_isnt_called_a_rendezvous_service(self):
        agents, workers = self.start_two("-")
        text = self.ask("elsewhere", "logs", "rank1", "--rdzv_endpoint", ENDPOINT)
        self.assert_status(1, text)
        self.assertIn("agent at 10.77.0.2:", text.text())
        self.assertNotIn("rendezvous service", text.text())
        self.assertNotIn("10.77.0.1:", text.text(), "the other node has nothing to do with rank 1")
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)


if __name__ == "__main__":
    job.main()
