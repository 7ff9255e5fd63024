#!/usr/bin/env python3
"""An endpoint that isn't there yet: said at once, tried again until join_timeout."""

import os
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, WORKER, BedTestCase, free_port, read_until  # noqa: E402

BOUND = 2 * SLOW


def read_file(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


class Endpoint(BedTestCase):
    def client(self, endpoint, join_timeout):
        return self.bed.run(
            "client", ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint, "--rdzv_conf",
                       f"is_host=0,join_timeout={join_timeout}", "--event_log", self.bed.events.path,
                       *self.worker()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def worker(self):
        return [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "worker.py"),
                self.bed.journal.path, "wait"]

    def check_message_then_timeout(self, endpoint, word):
        started = time.monotonic()
        client = self.client(endpoint, 3)
        read_until(client.stdout, word.encode(), BOUND)
        self.assertLess(time.monotonic() - started, BOUND)
        self.assert_status(1, client, 3 + BOUND)
        self.assertGreater(time.monotonic() - started, 2.5)

    def test_name_that_does_not_resolve(self):
        self.check_message_then_timeout("no-such-host.invalid:29400", "no-such-host.invalid")

    def test_nobody_answers(self):
        port = free_port()
        self.check_message_then_timeout(f"127.0.0.1:{port}", str(port))

    def output(self, *words, status=0):
        job = self.bed.run("job", [*words, "--no_python", "sh", "-c", "echo at $MASTER_ADDR $MASTER_PORT"])
        self.assert_status(status, job)
        return job.text()

    def test_a_master_port_that_torchrun_ignores(self):
        """Two such jobs run beside each other, and a port beyond all ports is none."""
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
            for words in (["--standalone"], ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]):
                text = self.output(*words, "--master_port", port)
                self.assertRegex(text, rf"--master_port: reserve TCP port {port}: .*; workers get a free MASTER_PORT\n")
                self.assertRegex(text, r"(?m)^at \S+ \d+$")
            self.assertIn("leave the option out to get a free one", self.output("--master_port", port, status=1))
        self.assertIn("workers get a free MASTER_PORT", self.output("--standalone", "--master_port", 70000))

    def test_standalone_with_a_range_of_nodes(self):
        self.assertIn("--nnodes '1:2' is taken for 1", self.output("--standalone", "--nnodes", "1:2"))

    def test_each_node_has_its_own_name_for_the_first_one(self):
        port, script = free_port(), ["--no_python", "sh", "-c", "echo from $GROUP_RANK: $MASTER_ADDR"]
        names = ("0.0.0.0", "127.0.0.1")
        words = ["--nnodes", 2, "--master_port", port, "--master_addr"]
        nodes = [self.bed.run(f"node{one}", [*words, name, "--node_rank", one, *script]) for one, name in enumerate(names)]
        for number, (node, name) in enumerate(zip(nodes, names)):
            self.assert_status(0, node)
            self.assertIn(f"from {number}: {name}\n", node.text())

    def test_one_node_rank_for_all(self):
        """As a batch script gives it that knows nothing of c10d, which needs none."""
        for rank in range(2):
            words = ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--node_rank", rank]
            nodes = [self.bed.run(f"node{i} of {rank}", [*words, *self.worker()]) for i in range(2)]
            others = [] if rank == 0 else workers
            workers = [one for one in self.bed.workers(1, 2 + 2 * rank, alive=nodes) if one not in others]
            self.assertEqual({0, 1}, {line["rank"] for line in workers})
            self.bed.finish(workers)
            for node in nodes:
                self.assert_status(0, node)
            said = f"joins without --node_rank {rank}, which c10d doesn't need"
            self.assertIn(said, "".join(node.text() for node in nodes))

    def test_an_endpoint_that_another_program_has(self):
        """A job of one node runs all the same; an agent of the same job waits, as before."""
        port = free_port()
        words = ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}", "--rdzv_id"]
        first = self.bed.run("first", [*words, "a", *self.worker()])
        workers = self.bed.workers(1, 1, alive=[first])
        script = ["--no_python", "sh", "-c", "echo ran"]
        other = self.bed.run("other", [*words, "b", *script])
        self.assert_status(0, other)
        self.assertRegex(other.text(), r"(?s)can't be this job's endpoint .*for run id 'a' alone.*ran")
        same = self.bed.run("same", [*words, "a", *self.worker()])
        self.bed.wait(lambda: "is a spare" in same.text(), "the spare", alive=[first, same])
        self.bed.finish(workers)
        for agent in (first, same):
            self.assert_status(0, agent)
        with socket.create_server(("127.0.0.1", port)) as silent:
            silent.listen()
            self.assertRegex(self.output(*words, "c"), r"(?m)^at \S+ \d+$")
            twin = self.client(f"127.0.0.1:{port}", 3)  # with two nodes the other one couldn't find this one
            self.assert_status(1, twin)

    def test_the_service_comes_later(self):
        port = free_port()
        client = self.client(f"127.0.0.1:{port}", 60)
        read_until(client.stdout, str(port).encode(), BOUND)
        host = self.bed.run("host", ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}",
                                     "--rdzv_conf", "is_host=1", "--event_log", self.bed.events.path, *self.worker()])
        self.bed.finish(self.bed.workers(1, 2, alive=[client, host]))
        self.assert_status(0, client)
        self.assert_status(0, host)


class OpenService(BedTestCase):
    """`ddprun rendezvous` says when any machine may join jobs there."""

    def said(self, *options):
        service = self.bed.run("service", ["rendezvous", *options])
        self.bed.wait(lambda: "rendezvous service on" in service.text(), "the service", alive=[service])
        service.signal(signal.SIGTERM)
        service.wait(BOUND)
        return service.text()

    def test_to_all(self):
        text = self.said("--listen", f"0.0.0.0:{free_port()}")
        self.assertRegex(text, r"warning: anybody who can reach 0\.0\.0\.0:\d+ can join jobs there and read their status: give "
                               r"--token_file or --tls_dir\n")

    def test_twins(self):
        token = self.bed.write("token", "secret", mode=0o600)
        for options in (("--listen", f"127.0.0.1:{free_port()}"), ("--listen", f"[::1]:{free_port()}"),
                        ("--listen", f"0.0.0.0:{free_port()}", "--token_file", token)):
            self.assertNotIn("warning", self.said(*options), options)


class Descriptors(BedTestCase):
    """A service has two or three connections for each agent: it takes what the hard limit allows."""

    def service(self, soft, hard):
        self.port = free_port()
        service = self.bed.start_process(
            "service", ["prlimit", f"--nofile={soft}:{hard}", DDPRUN, "rendezvous", "--listen", f"127.0.0.1:{self.port}"],
            env=self.bed.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        read_until(service.stdout, b"Ctrl-C", BOUND)
        return service

    def soft_limit(self, pid):
        with open(f"/proc/{pid}/limits", encoding="utf-8") as limits:
            return int(next(line for line in limits if line.startswith("Max open files")).split()[3])

    def test_a_service_takes_the_hard_limit(self):
        self.assertEqual(512, self.soft_limit(self.service(128, 512).pid))

    def test_so_does_the_service_of_an_agent_but_no_worker(self):
        agent = self.bed.start_process(
            "agent", ["prlimit", "--nofile=128:512", DDPRUN, "--event_log", self.bed.events.path, "--standalone",
                      WORKER, self.bed.journal.path, "wait"], env=self.bed.environment)
        worker = self.bed.workers(1, 1, alive=[agent])[0]
        children = f"/proc/{agent.pid}/task/{agent.pid}/children"
        with open(children, encoding="utf-8") as listed:
            names = {read_file(f"/proc/{pid}/comm").strip(): pid for pid in listed.read().split()}
        self.assertEqual(512, self.soft_limit(names["ddprun-service"]))
        self.assertEqual(128, self.soft_limit(worker["pid"]))

    def test_strangers_do_not_use_them_up(self):
        service = self.service(128, 128)
        sockets = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(200)]
        read_until(service.stdout, b"too many connections came from its address", BOUND)
        # From this very address one gets in when the others have said nothing for a second.
        command = [DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{self.port}"]
        end = time.monotonic() + BOUND
        while time.monotonic() < end:
            asked = subprocess.run(command, env=self.bed.environment, capture_output=True, text=True, check=False)
            if "where the service answers" in asked.stderr:
                break
        for each in sockets:
            each.close()
        self.assertIn("where the service answers", asked.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
