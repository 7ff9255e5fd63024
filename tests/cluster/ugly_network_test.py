#!/usr/bin/env python3
"""Networks as they are: each works, or is explained within two seconds."""

import subprocess
import time

import job
from bed import SLOW, WORKER, read_until

EXPLAINED = 2.0
NOBODY = "10.77.0.99"  # no host of ours


class UglyNetworks(job.ClusterTestCase):
    def works(self, endpoint, conf="", options=(), env=None, hosts=(1, 2), master=None):
        """A job of these hosts starts soon, and all workers reach the master."""
        agents = [self.bed.agent(f"agent{i}", ["--nnodes", len(hosts), "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                               endpoint, *(["--rdzv_conf", conf] if conf and i == 1 else []), *options],
                                 ("reach", "wait"), host=i, env=env) for i in hosts]
        workers = self.bed.workers(1, len(hosts), alive=agents)
        # Rank 0 is on the host whose clock is ours.
        self.assertLess(workers[0]["t"] - agents[-1].started, EXPLAINED * SLOW)
        for line in workers:
            reached, = self.bed.wait(lambda rank=line["rank"]: self.bed.journal.find("reach", rank=rank), "reach")
            self.assertTrue(reached["reached"], reached)
        if master is not None:
            self.assertEqual({master}, {line["environment"]["MASTER_ADDR"] for line in workers})
        self.finish(agents, 1, len(hosts))
        return workers

    def node(self, host, endpoint, **how):
        return self.bed.run(f"agent{host}", ["--nnodes", 2, "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint,
                                             "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, "reach",
                                             "wait"], host=host, **how)

    def is_explained(self, host, endpoint, words):
        """What an agent says up to these words, which come in time."""
        agent = self.node(host, endpoint, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        began = time.monotonic()
        text = read_until(agent.stdout, words.encode() + b".*\n", 5 * SLOW).decode()
        self.assertLess(time.monotonic() - began, EXPLAINED * SLOW, text)
        return text

    def ephemeral_ports(self, first_and_last):
        self.cluster.on_host(1, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={first_and_last}",
                             undo=["sysctl", "-qw", "net.ipv4.ip_local_port_range=32768 60999"])

    def test_no_name_service(self):
        for i in (1, 2):
            self.cluster.set_file(i, "/etc/hosts", "")
            self.cluster.set_file(i, "/etc/resolv.conf", f"nameserver {NOBODY}\n")
        self.works(f"10.77.0.1:{job.PORT}", master="10.77.0.1")

    def test_no_name_service_but_a_name(self):
        self.cluster.set_file(2, "/etc/hosts", "")
        self.cluster.set_file(2, "/etc/resolv.conf", f"nameserver {NOBODY}\n")
        self.is_explained(2, f"n1:{job.PORT}", "n1")

    def test_reverse_names_are_bogus(self):
        for i in (1, 2):
            self.cluster.set_file(i, "/etc/hosts", "".join(
                f"10.77.0.{j} host-{j}.provider.invalid\n" for j in (1, 2)))
        self.works(f"10.77.0.1:{job.PORT}", master="10.77.0.1")

    def test_ipv6_only(self):
        for i in (1, 2):
            self.cluster.on_host(i, "ip", "-4", "addr", "flush", "dev", "eth0",
                                 undo=["ip", "addr", "add", f"10.77.0.{i}/24", "dev", "eth0"])
        self.works(f"[fd00:77::1]:{job.PORT}", master="fd00:77::1")

    def test_ipv6_by_name(self):
        for i in (1, 2):
            self.cluster.on_host(i, "ip", "-4", "addr", "flush", "dev", "eth0",
                                 undo=["ip", "addr", "add", f"10.77.0.{i}/24", "dev", "eth0"])
            self.cluster.set_file(i, "/etc/hosts", "fd00:77::1 n1\nfd00:77::2 n2\n")
        self.works(f"n1:{job.PORT}")

    def test_an_interface_that_leads_nowhere(self):
        """Listed first, with an address of its own, and its own name resolves to that."""
        for i in (1, 2):
            self.cluster.on_host(i, "ip", "link", "add", "aaa0", "type", "veth", "peer", "name", "aaa1",
                                 undo=["ip", "link", "del", "aaa0"])
            self.cluster.on_host(i, "ip", "addr", "add", f"192.168.99.{i}/24", "dev", "aaa0")
            self.cluster.on_host(i, "ip", "link", "set", "aaa0", "up")
            self.cluster.set_file(i, "/etc/hosts", "".join(
                f"{'192.168.99' if i == j else '10.77.0'}.{j} n{j}\n" for j in (1, 2)))
        self.works(f"10.77.0.1:{job.PORT}", master="10.77.0.1")

    def test_own_name_is_of_such_an_interface(self):
        """What the host's name means there is not what others reach it by."""
        self.cluster.on_host(1, "ip", "link", "add", "aaa0", "type", "veth", "peer", "name", "aaa1",
                             undo=["ip", "link", "del", "aaa0"])
        self.cluster.on_host(1, "ip", "addr", "add", "192.168.99.1/24", "dev", "aaa0")
        self.cluster.on_host(1, "ip", "link", "set", "aaa0", "up")
        self.cluster.set_file(1, "/etc/hosts", "192.168.99.1 n1\n10.77.0.2 n2\n")
        self.works(f"n1:{job.PORT}", master="n1")

    def test_own_name_is_a_loopback_address(self):
        """Debian's /etc/hosts: 127.0.1.1 is the machine's own name."""
        for i in (1, 2):
            self.cluster.set_file(i, "/etc/hosts", "127.0.0.1 localhost\n" + "".join(
                f"{'127.0.1.1' if i == j else f'10.77.0.{j}'} n{j}\n" for j in (1, 2)))
        self.works(f"n1:{job.PORT}", master="n1")

    def test_proxies_are_set(self):
        proxy = f"http://{NOBODY}:3128"
        self.works(f"10.77.0.1:{job.PORT}", env={name: proxy for name in (
            "http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")})

    def test_clocks_differ(self):
        """Each machine's clocks are its own: here CLOCK_MONOTONIC, hours apart."""
        self.cluster.shift_clock(2, 7200)
        self.works(f"10.77.0.1:{job.PORT}")

    def translated(self):
        """n4 passes what is sent to 10.99.0.1 on to n1, as a load balancer or a container host does."""
        self.cluster.on_host(4, "sysctl", "-qw", "net.ipv4.ip_forward=1", undo=["sysctl", "-qw", "net.ipv4.ip_forward=0"])
        self.cluster.on_host(4, "nft", "add table ip nat; "
                             "add chain ip nat pre { type nat hook prerouting priority -100; }; "
                             "add chain ip nat post { type nat hook postrouting priority 100; }; "
                             f"add rule ip nat pre ip daddr 10.99.0.1 tcp dport {job.PORT} dnat to 10.77.0.1; "
                             "add rule ip nat post ip daddr 10.77.0.1 masquerade",
                             undo=["nft", "delete table ip nat"])
        for i in (1, 2):
            self.cluster.on_host(i, "ip", "route", "add", "10.99.0.1", "via", "10.77.0.4",
                                 undo=["ip", "route", "del", "10.99.0.1"])

    def test_address_is_translated(self):
        self.translated()
        self.works(f"10.99.0.1:{job.PORT}", conf="is_host=1", master="10.77.0.1")

    def test_address_is_translated_and_nobody_knows_the_host(self):
        self.translated()
        text = self.is_explained(1, f"10.99.0.1:{job.PORT}", "can't reach")
        self.assertIn("is_host", text)

    def test_ports_are_blocked(self):
        self.cluster.only_ports(job.PORT, job.PORT + 10)
        self.node(1, f"n1:{job.PORT}")
        text = self.is_explained(2, f"n1:{job.PORT}", "MASTER_PORT")
        self.assertIn("--master_port", text)

    def test_ports_are_blocked_but_some(self):
        self.cluster.only_ports(job.PORT, job.PORT + 10)
        self.works(f"10.77.0.1:{job.PORT}", options=("--master_port", job.PORT + 1))

    def test_the_endpoints_port_is_one_that_the_kernel_gives(self):
        """Agents of one machine take any free ports before there is a service, and leave it that one."""
        self.ephemeral_ports("30000 30063")
        # Otherwise connections that have ended hold ports for a minute.
        self.cluster.on_host(1, "sysctl", "-qw", "net.ipv4.tcp_max_tw_buckets=0",
                             undo=["sysctl", "-qw", "net.ipv4.tcp_max_tw_buckets=131072"])
        for job_number in range(8):  # without that, a third of such jobs waited
            words = ["--nnodes", 8, "--rdzv_backend", "c10d", "--rdzv_endpoint", "n1:30011", "--rdzv_id", job_number,
                     "--no_python", "true"]
            for agent in [self.bed.run(f"agent{job_number}.{i}", words, host=1) for i in range(8)]:
                self.assert_status(0, agent)

    def test_no_ephemeral_port_is_free(self):
        """Each generation has a port of its own; where none can be had, it says so."""
        self.ephemeral_ports("30000 30000")
        pin = self.bed.start_process("pin", self.cluster.command(1, ["python3", "-c", PIN]), stdout=subprocess.PIPE)
        read_until(pin.stdout, b"bound", 5 * SLOW)
        self.is_explained(1, f"10.77.0.1:{job.PORT}", "port")


# Holds the only ephemeral port, for connections and for servers.
PIN = """import signal, socket
for family, host in ((socket.AF_INET6, "::"),):
    held = socket.socket(family)
    held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    held.bind((host, 30000))
    held.listen()
print("bound", flush=True)
signal.pause()
"""

if __name__ == "__main__":
    job.main()
