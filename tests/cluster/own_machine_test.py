#!/usr/bin/env python3
"""Commands about a job of two nodes, typed on the service's machine, on the other node, and elsewhere, by each of its names.

What runs on a machine is asked there by any name of that machine, and its owner needs neither token nor certificate; what
runs elsewhere is asked as strangers are.
"""

import asking
import job

ENDPOINT = f"n1:{job.PORT}"
MEET = ("--rdzv_backend", "c10d", "--rdzv_endpoint", ENDPOINT)
NAMES = {"none": (), **{name: ("--rdzv_endpoint", endpoint) for name, endpoint in (
    ("localhost", f"localhost:{job.PORT}"), ("name", ENDPOINT), ("IPv4", f"10.77.0.1:{job.PORT}"),
    ("IPv6", f"[fd00:77::1]:{job.PORT}"))}}
PLACES = {"service": 1, "node": 2, "elsewhere": 3}
# `stop` names a job that isn't there, for the same reason.
COMMANDS = {**asking.COMMANDS, "logs0": ("logs", "rank0"), "logs1": ("logs", "rank1"), "stop": ("stop", "--rdzv_id", "nosuchjob")}
# job: how the job is protected. given: the credentials that the command has. at: names of the service's machine; "*" = all but
# "localhost".
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
    """(line of the row, credentials, host, name, {command: expected result}) for each job with that protection."""
    for line, row in asking.rows_of(MATRIX, protection):
        # Elsewhere no agent knows the service.
        names = [row["at"]] if row["at"] != "*" else [
            name for name in NAMES if name != "localhost" and (name != "none" or row["place"] != "elsewhere")]
        for name in names:
            outcomes = {command: row[command] for command in COMMANDS}
            if name == "none" and row["place"] == "node":
                outcomes["stop"] = "no job"  # nothing says where it would be
            yield f"{line} by {name}", row["given"], PLACES[row["place"]], name, outcomes


class OwnMachine(asking.Asking):
    hosts = 3

    def check_rows(self, protection):
        agents, workers = self.start_two(protection, *MEET)
        self.assertEqual([0, 1], [workers[host]["rank"] for host in (1, 2)])
        for row, given, host, name, outcomes in rows(protection):
            askers = {command: self.ask(host, *words, *NAMES[name], *self.credentials(given),
                                        *(() if command == "stop" else ("--rdzv_id", self.run_id)))
                      for command, words in COMMANDS.items()}
            for command, comes_to in outcomes.items():
                self.check(row, command.rstrip("01"), comes_to, askers[command])
        self.end(agents, workers)

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
        agents, _ = self.start_two("token+tls", *MEET, "--nnodes", "1:2")
        drained = self.ask(1, "drain", "n2", "--rdzv_endpoint", ENDPOINT)
        self.assert_status(0, drained)
        self.assertIn("left", drained.text())
        self.assert_status(75, agents[1])
        stopped = self.ask(1, "stop", "--rdzv_endpoint", ENDPOINT)
        self.assert_status(0, stopped)
        self.assertIn(f"ended job '{self.run_id}' (", stopped.text())
        self.assertIn(f"at {ENDPOINT}", stopped.text(), "the name that was typed, not the socket")
        self.assert_status(1, agents[0])

    def test_one_ranks_logs_are_asked_of_its_node_alone(self):
        agents, workers = self.start_two("-", *MEET)
        refused = self.ask(3, "logs", "rank1", "--rdzv_endpoint", ENDPOINT)
        self.assert_status(1, refused)
        self.assertIn("agent at 10.77.0.2:", refused.text())
        self.assertNotIn("rendezvous service", refused.text(), "an agent is none")
        self.assertNotIn("10.77.0.1:", refused.text(), "the other node has nothing to do with rank 1")
        self.end(agents, workers)


if __name__ == "__main__":
    job.main()
