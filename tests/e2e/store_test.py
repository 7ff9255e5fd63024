#!/usr/bin/env python3
"""torch.distributed's workers meet in the store that the agent of rank 0's node serves.

Wants a Python with torch: DDPRUN_TEST_PYTHON, else the cached one of scripts/setup.
"""

import os
import signal
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, BedTestCase, free_port, torch_ahead  # noqa: E402

CACHE = os.environ.get("DDPRUN_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
PYTHON = os.environ.get("DDPRUN_TEST_PYTHON") or os.path.join(CACHE, "py-full", "bin", "python3")
WORKER = os.path.join(ROOT, "tests", "support", "torch_worker.py")
# Importing torch takes seconds, more where several do it at once.
PATIENCE = 90 * SLOW


@unittest.skipUnless(os.path.exists(PYTHON), "no Python with torch; scripts/setup installs one")
class StoreTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.bed.environment["PYTHON_EXEC"] = PYTHON

    def torch(self, name, options, *actions, env=None):
        return self.bed.run(name, [*options, "--event_log", self.bed.events.path, WORKER, self.bed.journal.path,
                                   *actions], env=env)

    def two_static_nodes(self, *actions, nproc=1, env=None, options=()):
        static = ["--nnodes", 2, "--master_addr", "127.0.0.1", "--master_port", free_port(),
                  "--nproc_per_node", nproc, *options]
        return [self.torch(f"node{rank}", [*static, "--node_rank", rank], *actions, env=env) for rank in (0, 1)]

    def assert_ended_well(self, *agents):
        for agent in agents:
            self.assert_status(0, agent, PATIENCE)


class OneGeneration(StoreTestCase):
    def test_every_operation(self):
        self.assert_ended_well(self.torch("agent", ["--nproc_per_node", 2], "store"))
        lines = self.bed.workers(1, 2)
        self.assertEqual(["True"] * 2, [line["agent_store"] for line in lines])
        self.assertEqual(["all"] * 2, [line["operations"] for line in lines])

    def test_every_operation_as_torchs_own_server_does_them(self):
        """Negative control: the same checks hold when worker rank 0 hosts (check 52)."""
        self.assert_ended_well(self.torch("agent", ["--nproc_per_node", 2, *torch_ahead()], "store",
                                          env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}))
        self.assertEqual(["False"] * 2, [line["agent_store"] for line in self.bed.workers(1, 2)])

    def test_process_group_on_two_nodes(self):
        self.assert_ended_well(*self.two_static_nodes("join", nproc=2, options=torch_ahead()))
        lines = self.bed.workers(1, 4)
        self.assertEqual([10.0] * 4, [line["sum"] for line in lines])
        self.assertEqual(1, len({line["master_port"] for line in lines}))

    def test_process_group_when_worker_rank_zero_hosts(self):
        env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.assert_ended_well(*self.two_static_nodes("join", env=env))
        self.assertEqual([3.0, 3.0], [line["sum"] for line in self.bed.workers(1, 2)])

    def test_the_store_outlives_rank_zero_and_its_nodes_workers(self):
        agents = self.two_static_nodes("outlive")
        self.bed.workers(1, 2, timeout=PATIENCE, alive=agents)
        # All that rank 0's node has to do is done; the other node's worker goes on.
        self.bed.event("group_empty", generation="1", alive=agents)
        self.bed.finish([line for line in self.bed.workers(1, 2) if line["rank"] == 1])
        self.assert_ended_well(*agents)

    def test_workers_do_not_inherit_the_port(self):
        script = self.bed.write("fds.py", "import os\nfor fd in os.listdir('/proc/self/fd'):\n"
                                "  try: print(os.readlink('/proc/self/fd/' + fd))\n  except OSError: pass\n")
        agent = self.bed.run("agent", [script])
        self.assert_status(0, agent)
        self.assertNotIn("socket:", agent.text())


class Restarts(StoreTestCase):
    def test_ten_killed_workers_in_a_row(self):
        options = ["--nproc_per_node", 2, "--max_restarts", 10, *torch_ahead()]
        agent = self.torch("agent", options, "join", "bare=2-8", "die-until=10")
        self.assert_status(0, agent, 3 * PATIENCE)
        for generation in range(1, 12):
            sums = [None, None] if 3 <= generation <= 9 else [3.0, 3.0]
            self.assertEqual(sums, [line.get("sum") for line in self.bed.workers(generation, 2)])
        self.assertEqual(10, self.bed.workers(11, 2)[0]["restart_count"])
        ports = [self.bed.workers(generation, 2)[0]["master_port"] for generation in range(1, 12)]
        self.assertTrue(all(a != b for a, b in zip(ports, ports[1:])), ports)

    def test_the_same_port_again_on_two_nodes(self):
        agents = self.two_static_nodes("join", "die-until=2", options=["--max_restarts", 2, *torch_ahead()])
        for agent in agents:
            self.assert_status(0, agent, 2 * PATIENCE)
        lines = [line for generation in range(1, 4) for line in self.bed.workers(generation, 2)]
        self.assertEqual([3.0] * 6, [line["sum"] for line in lines])
        self.assertEqual(1, len({line["master_port"] for line in lines}))


class Elastic(StoreTestCase):
    def test_the_job_grows_and_shrinks(self):
        options = ["--nnodes", "1:2", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--rdzv_id", "grow",
                   "--rdzv_conf", "last_call_timeout=1", *torch_ahead()]
        first = self.torch("first", options, "join", "wait")
        alone = self.bed.workers(1, 1, timeout=PATIENCE, alive=[first])
        self.assertEqual(1.0, alone[0]["sum"])
        second = self.torch("second", options, "join", "wait")
        both = self.bed.next_workers(1, 2, 2, timeout=PATIENCE, alive=[first, second])
        self.assertEqual([3.0, 3.0], [line["sum"] for line in both])
        second.signal(signal.SIGKILL)
        again = self.bed.next_workers(both[0]["generation"], 1, 1, timeout=PATIENCE, alive=[first])
        self.assertEqual(1.0, again[0]["sum"])
        self.bed.finish(again)
        self.assert_ended_well(first)


class BadClients(BedTestCase):
    def test_bytes_that_are_no_request_cost_nobody_else_anything(self):
        agent = self.bed.agent("agent", ["--nproc_per_node", 1])
        environment = self.bed.workers(1, 1, alive=[agent])[0]["environment"]
        for bytes_ in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\xce\xf7\x85\x3c\x63", b"\xff" * 100_000):
            with socket.create_connection((environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))) as client:
                client.settimeout(PATIENCE)
                try:
                    client.sendall(bytes_)
                    self.assertEqual(b"", client.recv(1))
                except ConnectionError:
                    pass
        self.bed.finish(self.bed.workers(1, 1))
        self.assert_status(0, agent)
        self.assertIn("closes a connection from 127.0.0.1: command 99 of TCPStore's protocol", agent.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
