"""A real cluster of etcd on this machine's loopback."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from bed import SLOW, free_port


def etcd_is_there():
    return shutil.which("etcd") is not None and shutil.which("etcdctl") is not None


class EtcdCluster:
    """Members that trust their disk (nothing is synced) and choose a leader within half a second: on this machine's loopback,
    or the first on host 1 of a Cluster, and so on."""

    def __init__(self, members=3, hosts=None):
        self.hosts = hosts
        self.folder = tempfile.mkdtemp(prefix="ddprun-etcd-")
        self.ports = [(free_port(), free_port()) for _ in range(members)]
        self.processes = [None] * members
        self.credentials = []
        for index in range(members):
            self.start(index)
        self.wait(self.is_healthy, "etcd to be healthy")

    @property
    def endpoints(self):
        return ",".join(self.endpoint(index) for index in range(len(self.ports)))

    def address(self, index):
        return f"10.77.0.{index + 1}" if self.hosts else "127.0.0.1"

    def endpoint(self, index):
        return f"{self.address(index)}:{self.ports[index][0]}"

    def on_host_of(self, index, command):
        return self.hosts.command(index + 1, command) if self.hosts else command

    def start(self, index):
        client, peer = (f"http://{self.address(index)}:{port}" for port in self.ports[index])
        cluster = ",".join(f"m{number}=http://{self.address(number)}:{port}" for number, (_, port) in enumerate(self.ports))
        command = ["etcd", "--name", f"m{index}", "--data-dir", os.path.join(self.folder, f"m{index}"),
                   "--listen-client-urls", client, "--advertise-client-urls", client,
                   "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", cluster, "--initial-cluster-state", "new",
                   "--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"]
        with open(os.path.join(self.folder, f"m{index}.log"), "ab") as log:
            self.processes[index] = subprocess.Popen(self.on_host_of(index, command), stdout=log, stderr=subprocess.STDOUT)

    def control(self, *words, check=True, index=None):
        """Output of etcdctl."""
        endpoints = self.endpoints if index is None else self.endpoint(index)
        command = self.on_host_of(index or 0, ["etcdctl", "--endpoints", endpoints, *self.credentials, *words])
        done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=30 * SLOW,
                              env={**os.environ, "ETCDCTL_API": "3"})
        if check and done.returncode != 0:
            raise AssertionError(f"etcdctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout + (done.stderr if not check else "")

    def is_healthy(self):
        return "is healthy" in self.control("endpoint", "health", check=False, index=0)

    def is_whole(self):
        return "unhealthy" not in self.control("endpoint", "health", check=False)

    def keys(self):
        """What is kept, by key."""
        lines = self.control("get", "--prefix", "/", "--keys-only").split("\n")
        return sorted(line for line in lines if line)

    def leader(self):
        """The number of etcd's own leader."""
        status = json.loads(self.control("endpoint", "status", "-w", "json"))
        for each in status:
            if each["Status"]["leader"] == each["Status"]["header"]["member_id"]:
                port = int(re.search(r":(\d+)$", each["Endpoint"]).group(1))
                return [client for client, _ in self.ports].index(port)
        raise AssertionError(f"etcd has no leader: {status}")

    def lead(self, index):
        """Has this member be etcd's leader."""
        if self.leader() == index:
            return
        status = json.loads(self.control("endpoint", "status", "-w", "json", index=index))
        self.control("move-leader", format(status[0]["Status"]["header"]["member_id"], "x"), index=self.leader())

    def granted(self, key):
        """The time to live, in seconds, of the lease that a key goes with."""
        kept = json.loads(self.control("get", key, "-w", "json"))
        lease = format(kept["kvs"][0]["lease"], "x")
        return json.loads(self.control("lease", "timetolive", lease, "-w", "json"))["granted-ttl"]

    def kill(self, index):
        self.processes[index].send_signal(signal.SIGKILL)
        self.processes[index].wait()

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.folder)

    @staticmethod
    def wait(condition, what):
        end = time.monotonic() + 20 * SLOW
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what}")
