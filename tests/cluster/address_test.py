#!/usr/bin/env python3
"""Workers reach their store at the address that they are given, whatever kind of address it is.

The workers of support/store_worker.py connect to it: a test that only compares variables wouldn't notice that nobody listens.
"""

import os
import select
import signal
import subprocess

import job
from bed import PATIENCE, ROOT, read_until

STORE_WORKER = os.path.join(ROOT, "tests", "support", "store_worker.py")
CANNOT = "can't reach it at"
# A client of the store that has set a key, and waits for the end of its connection.
CLIENT = """
import socket, struct
client = socket.create_connection(("n1", 29555))
client.sendall(b"\\0" + struct.pack("<I", 0x3C85F7CE) + b"\\1" + struct.pack("<Q", 5) + b"rank0" + bytes(8) + b"\\x0d" + bytes(4))
client.recv(4, socket.MSG_WAITALL)
print("in", flush=True)
print("cut" if client.recv(1) == b"" else "answered", flush=True)
"""
# Clients of nothing, until they are killed.
STRANGERS = """
import signal, socket
kept = []
for says in (b"", b"\\0", b"\\0\\1\\2\\3\\4\\5", b"\\x16", b"\\x16\\3\\1", b"P", b"PRI * HTTP/2.0", b"GET / HTTP/1.1\\r\\n\\r\\n",
             bytes(99), b"\\xff" * 99):
    for _ in range(3):
        kept.append(socket.create_connection(("n1", 29555)))
        kept[-1].sendall(says)
    socket.create_connection(("n1", 29555)).sendall(says)
print("in", flush=True)
signal.pause()
"""
DEBIAN = "127.0.0.1 localhost\n::1 ip6-localhost\n127.0.1.1 n1\n10.77.0.2 n2\n"
SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_ID": "0",
         "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1",
         "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
         "SLURMD_NODENAME": "n1"}


def c10d(endpoint, *more):
    return ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"{endpoint}:{job.PORT}", *more]


def descriptors(pids):
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)


class AddressTestCase(job.ClusterTestCase):
    seen = 0  # lines of workers that met

    def launch(self, name, options, host=1, env=None, worker=()):
        return self.bed.run(name, [*options, STORE_WORKER, self.bed.journal.path, *worker], host=host, env=env)

    def met(self, agents, world, address):
        """All ends well, and all ranks met at this address; returns the port."""
        for agent in agents:
            self.assert_status(0, agent)
            self.assertNotIn(CANNOT, agent.text())
        def all_met():
            lines = self.bed.journal.find("met")[self.seen:]
            return lines if len(lines) >= world else None
        lines = self.bed.wait(all_met, f"{world} workers that met")
        self.seen += world
        self.assertEqual(list(range(world)), sorted(line["rank"] for line in lines))
        self.assertEqual({address}, {line["address"] for line in lines})
        self.assertEqual(1, len({line["port"] for line in lines}))
        return lines[0]["port"]


class OneNode(AddressTestCase):
    def works(self, options, address, env=None):
        with self.subTest(options=options, env=env):
            agent = self.launch(f"agent{len(self.bed.agents)}", ["--nproc_per_node", 2, *options], env=env)
            self.met([agent], 2, address)

    def test_an_endpoint_by_any_address(self):
        for address in ("10.77.0.1", "n1", "[fd00:77::1]", "[::1]", "127.0.0.1", "127.0.0.2", "localhost"):
            plain = address.strip("[]")
            self.works(["--nnodes", 1, *c10d(address)], plain)
        self.works(c10d("10.77.0.1", "--master_port", 29655), "10.77.0.1")
        self.works(c10d("10.77.0.1", "--rdzv_conf", "is_host=1"), "10.77.0.1")
        self.works(c10d("localhost", "--local_addr", "10.77.0.1"), "10.77.0.1")
        self.works(["--nnodes", "1:1", *c10d("n1")], "n1")
        self.works(["--rdzv_endpoint", f"n1:{job.PORT}"], "n1")

    def test_a_name_that_means_a_loopback_address(self):
        self.cluster.set_file(1, "/etc/hosts", DEBIAN)
        self.works(c10d("n1"), "n1")
        self.works(["--master_addr", "n1"], "n1")

    def test_static_and_standalone(self):
        for address in ("::1", "127.0.1.1", "n1", "10.77.0.1", "fd00:77::1"):
            self.works(["--master_addr", address], address)
            self.works(["--standalone", "--local_addr", address], address)
        self.works([], "127.0.0.1")
        self.works(["--rdzv_backend", "static", "--rdzv_endpoint", f"10.77.0.1:{job.PORT}"], "10.77.0.1")

    def test_variables_and_slurm(self):
        words = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": f"10.77.0.1:{job.PORT}"}
        self.works([], "10.77.0.1", env=words)
        self.works(c10d("n1"), "n1", env=SLURM)

    def test_an_address_that_nobody_has(self):
        """The warning comes before the workers start, and ends nothing: the script may not need the address."""
        agent = self.bed.agent("agent", ["--master_addr", "203.0.113.7"], host=1)
        workers = self.bed.workers(1, 1, alive=[agent])
        text = agent.text()
        self.assertIn("warning: this node serves the workers' store, but can't reach it at 203.0.113.7:", text)
        self.assertIn("--local_addr", text)
        self.bed.finish(workers)
        self.assert_status(0, agent)

    def test_a_loopback_address_is_this_machines_alone(self):
        """The store of such a job closes connections from elsewhere; that of the negative control answers."""
        reach = ["python3", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import store_worker; "
                 "store_worker.meet('10.77.0.1', int(sys.argv[2]), 0, 1)", os.path.dirname(STORE_WORKER)]
        for address, status in (("127.0.0.1", 1), ("10.77.0.1", 0)):
            agent = self.bed.agent(f"agent-{address}", ["--master_addr", address], host=1)
            workers = self.bed.wait(lambda where=address: [
                line for line in self.bed.journal.find("worker") if line["environment"]["MASTER_ADDR"] == where],
                "the worker", alive=[agent])
            command = [*reach, workers[0]["environment"]["MASTER_PORT"]]
            for host, expected in ((1, 0), (2, status)):
                client = self.bed.start_process(f"client-{address}-{host}", self.cluster.command(host, command),
                                                output=self.bed.path(f"client-{address}-{host}"))
                self.assert_status(expected, client)
            self.bed.finish(workers)
            self.assert_status(0, agent)


class TwoNodes(AddressTestCase):
    def static(self, address, port, *more, worker=(), env=None, hosts=(1, 2)):
        words = ["--nnodes", 2, "--nproc_per_node", 2, "--master_addr", address, "--master_port", port, *more]
        return [self.launch(f"node{rank}", [*words, "--node_rank", rank], hosts[rank], env, worker) for rank in (0, 1)]

    def test_the_masters_address_is_as_it_was_typed(self):
        """The workers get it also behind a router that translates it (TORCHRUN.md, 23): n4 passes 10.99.0.1 on to n1."""
        self.cluster.on_host(4, "sysctl", "-qw", "net.ipv4.ip_forward=1", undo=["sysctl", "-qw", "net.ipv4.ip_forward=0"])
        self.cluster.on_host(4, "nft", "add table ip nat; "
                             "add chain ip nat pre { type nat hook prerouting priority -100; }; "
                             "add chain ip nat post { type nat hook postrouting priority 100; }; "
                             "add rule ip nat pre ip daddr 10.99.0.1 dnat to 10.77.0.1; "
                             "add rule ip nat post ip daddr 10.77.0.1 masquerade",
                             undo=["nft", "delete table ip nat"])
        for i in (1, 2):
            self.cluster.on_host(i, "ip", "route", "add", "10.99.0.1", "via", "10.77.0.4",
                                 undo=["ip", "route", "del", "10.99.0.1"])
        self.met(self.static("10.99.0.1", 29555), 4, "10.99.0.1")

    def test_by_any_address(self):
        for address in ("n1", "10.77.0.1", "fd00:77::1"):
            with self.subTest(address=address):
                self.met(self.static(address, 29555), 4, address)

    def test_one_port_is_enough(self):
        """As with torchrun, service and store have one port: all others are closed between the hosts."""
        self.cluster.only_ports(29555, 29555)
        self.assertEqual(29555, self.met(self.static("n1", 29555), 4, "n1"))

    def test_a_store_of_the_workers_needs_another(self):
        """Negative control: worker rank 0 listens by itself, and the service is at the next port, which is closed here."""
        self.cluster.only_ports(29555, 29555)
        nodes = self.static("n1", 29555, "--rdzv_conf", "read_timeout=2", env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        self.assert_status(1, nodes[1])
        self.assertIn("n1:29556", nodes[1].text())

    def test_the_next_port_is_taken(self):
        """Two nodes on one machine, and another program has the port after the master's."""
        taken = self.bed.start_process("taken", self.cluster.command(1, [
            "python3", "-c", "import signal, socket; held = socket.create_server(('', 29556)); print('bound', flush=True); "
            "signal.pause()"]), stdout=subprocess.PIPE)
        read_until(taken.stdout, b"bound", PATIENCE)
        self.assertEqual(29555, self.met(self.static("n1", 29555, hosts=(1, 1)), 4, "n1"))
        self.assertEqual(29555, self.met(self.static("127.0.0.1", 29555, hosts=(1, 1)), 4, "127.0.0.1"))

    def test_the_hosts_node_calls_itself_localhost(self):
        """The other node gives its address; as with torchrun, the host listens at all addresses."""
        for own in (None, "localhost", "::1", "0.0.0.0"):
            with self.subTest(own=own):
                words = ["--nnodes", 2, "--nproc_per_node", 2, "--master_port", 29555]
                nodes = [self.launch(f"node0-{own}", [*words, "--node_rank", 0, *(["--master_addr", own] if own else [])]),
                         self.launch(f"node1-{own}", [*words, "--node_rank", 1, "--master_addr", "n1"], 2)]
                for node in nodes:
                    self.assert_status(0, node)
                endpoints = [(1, own), (2, "fd00:77::1" if own == "::1" else "10.77.0.1")]
                for node in [self.launch(f"c10d-{host}-{own}", ["--nnodes", 2, *c10d(f"[{name}]" if ":" in name else name)],
                                         host) for host, name in endpoints if own]:
                    self.assert_status(0, node)

    def test_an_endpoint_is_the_master(self):
        words = ["--nnodes", 2, "--rdzv_backend", "static", "--rdzv_endpoint", "n1:29555"]
        nodes = [self.launch(f"node{rank}", [*words, "--node_rank", rank], rank + 1) for rank in (0, 1)]
        self.assertEqual(29555, self.met(nodes, 2, "n1"))

    def test_each_generation_has_an_empty_store(self):
        nodes = self.static("n1", 29555, "--max_restarts", 2, worker=["fail=2"])
        for node in nodes:
            self.assert_status(0, node)
        last = self.bed.wait(lambda: (lines := [line for line in self.bed.journal.find("met") if line["attempt"] == 2])[3:] and
                             lines, "the third generation")
        self.assertEqual({29555}, {line["port"] for line in last})

    def test_with_tls(self):
        """The service wants TLS, and the store, on the same port, has none, as torch's clients."""
        self.assert_status(0, self.bed.run("certs", ["certs", self.bed.path("tls")]))
        self.met(self.static("n1", 29555, "--tls_dir", self.bed.path("tls")), 4, "n1")

    def waiting(self, *more):
        """(nodes, workers) of a job of two nodes. The workers wait for the signal that ends them."""
        nodes = [self.bed.agent(f"node{rank}", ["--nnodes", 2, "--node_rank", rank, "--master_addr", "n1", "--master_port",
                                                29555, "--max_restarts", 1, *more], host=rank + 1) for rank in (0, 1)]
        return nodes, self.bed.workers(1, 2, alive=nodes)

    def restart_and_finish(self, nodes, check=lambda: None):
        self.bed.kill_alone(1)
        workers = self.bed.workers(2, 2, alive=nodes)
        check()
        self.assertEqual({"29555"}, {line["environment"]["MASTER_PORT"] for line in workers})
        self.assertNotIn(CANNOT, nodes[0].text())
        self.bed.finish(workers)
        for node in nodes:
            self.assert_status(0, node)

    def python(self, host, program):
        """A program that has said that it is in."""
        process = self.bed.start_process("python", self.cluster.command(host, ["python3", "-c", program]),
                                         stdout=subprocess.PIPE)
        read_until(process.stdout, b"in\n", PATIENCE)
        return process

    def test_a_dead_service_is_no_end_of_the_store(self):
        """Connections stay, and the next generation meets at the service that was started again."""
        nodes, _ = self.waiting()
        client = self.python(2, CLIENT)
        os.kill(self.bed.event("service_started")["service_pid"], signal.SIGKILL)
        self.bed.event("service_restarted", alive=nodes)
        self.assert_quiet(lambda: select.select([client.stdout], [], [], 0)[0], 0.5)
        self.python(2, CLIENT)
        self.restart_and_finish(nodes)

    def test_a_generations_end_is_that_of_its_clients(self):
        """The port stays, but neither keys nor connections reach the next generation."""
        nodes, _ = self.waiting()
        client = self.python(2, CLIENT)
        self.restart_and_finish(nodes)
        self.assertIn(b"cut", read_until(client.stdout, b"\n", PATIENCE))

    def test_strangers_cost_nothing(self):
        """Strangers may send and keep open anything: the next generation's processes don't have their descriptors."""
        nodes, _ = self.waiting("--token_file", self.bed.write("token", "secret", mode=0o600))
        pids = [nodes[0].pid, self.bed.event("service_started")["service_pid"]]
        before = descriptors(pids)
        strangers = self.python(2, STRANGERS)
        self.python(2, CLIENT)
        self.assertGreater(descriptors(pids), before + 20)
        os.kill(strangers.pid, signal.SIGKILL)
        strangers.wait(PATIENCE)
        self.restart_and_finish(nodes, lambda: self.assertLess(descriptors(pids), before + 10))


if __name__ == "__main__":
    job.main()
