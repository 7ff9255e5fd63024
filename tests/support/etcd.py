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
    """Members that trust their disk (nothing is synced) and choose a leader within half a second."""

    def __init__(self, members=3):
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

    def endpoint(self, index):
        return f"127.0.0.1:{self.ports[index][0]}"

    def start(self, index):
        client, peer = (f"http://127.0.0.1:{port}" for port in self.ports[index])
        cluster = ",".join(f"m{number}=http://127.0.0.1:{port}" for number, (_, port) in enumerate(self.ports))
        with open(os.path.join(self.folder, f"m{index}.log"), "ab") as log:
            self.processes[index] = subprocess.Popen(
                ["etcd", "--name", f"m{index}", "--data-dir", os.path.join(self.folder, f"m{index}"),
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", cluster, "--initial-cluster-state", "new",
                 "--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"],
                stdout=log, stderr=subprocess.STDOUT)

    def control(self, *words, check=True, index=None):
        """Output of etcdctl."""
        endpoints = self.endpoints if index is None else self.endpoint(index)
        done = subprocess.run(["etcdctl", "--endpoints", endpoints, *self.credentials, *words], check=False, text=True,
                              capture_output=True, timeout=30 * SLOW, env={**os.environ, "ETCDCTL_API": "3"})
        if check and done.returncode != 0:
            raise AssertionError(f"etcdctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout + (done.stderr if not check else "")

    def is_healthy(self):
        return "is healthy" in self.control("endpoint", "health", check=False, index=0)

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
