"""A real cluster of etcd on this machine's loopback."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from bed import SLOW, free_port, read_until

# etcdctl gives up after 2 s otherwise, within which a busy machine may not have answered its log-in.
PATIENT = [f"--{what}-timeout={10 * SLOW:g}s" for what in ("dial", "command")]


def etcd_is_there():
    return shutil.which("etcd") is not None and shutil.which("etcdctl") is not None


class Authority:
    """A CA in a folder, and certificates that it signs."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder)
        self.ca = os.path.join(folder, "ca.crt")
        self._openssl("-out", self.ca, "-keyout", os.path.join(folder, "ca.key"), "-subj", "/CN=tests")

    def sign(self, name, says="IP:127.0.0.1"):
        """Paths of a certificate, valid for both sides of a connection, and of its key."""
        certificate, key = (os.path.join(self.folder, f"{name}.{end}") for end in ("crt", "key"))
        self._openssl("-out", certificate, "-keyout", key, "-subj", f"/CN={name}", "-CA", self.ca,
                      "-CAkey", os.path.join(self.folder, "ca.key"), "-addext", f"subjectAltName={says}",
                      "-addext", "basicConstraints=critical,CA:FALSE",
                      "-addext", "extendedKeyUsage=serverAuth,clientAuth")
        return certificate, key

    @staticmethod
    def bundle(*authorities):
        """The text of a file that trusts all of them."""
        text = ""
        for authority in authorities:
            with open(authority.ca, encoding="utf-8") as source:
                text += source.read()
        return text

    @staticmethod
    def _openssl(*words):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", *words], check=True, capture_output=True, timeout=60 * SLOW)


class EtcdCluster:
    """Members that trust their disk (nothing is synced) and choose a leader within half a second: on this machine's loopback,
    or the first on host 1 of a Cluster, and so on.

    `authority`: clients are served over TLS, and must show a certificate of it, or of one of `trusted`. `options`: more of
    etcd's."""

    def __init__(self, members=3, hosts=None, authority=None, trusted=(), options=()):
        self.hosts = hosts
        self.folder = tempfile.mkdtemp(prefix="ddprun-etcd-")
        self.options = list(options)
        self.scheme = "http"
        self.certificates = []
        if authority is not None:
            self.scheme = "https"
            self.serve_with(authority, *trusted)
        self.credentials = []
        if not any(self.start_all(members) for _ in range(5)):
            raise AssertionError("others took ports of etcd's members that were free, five times")

    def start_all(self, members):
        """Starts all members, and waits for them. False: somebody else took a port that was free."""
        self.ports = [(free_port(), free_port()) for _ in range(members)]
        self.processes = [None] * members
        for index in range(members):
            for left in glob.glob(os.path.join(self.folder, f"m{index}*")):
                (os.remove if os.path.isfile(left) else shutil.rmtree)(left)
            self.start(index)

        def has_ended():
            return any(process.poll() is not None for process in self.processes)

        # Two of three are healthy without the last one, which may not even listen yet.
        self.wait(lambda: has_ended() or all(self.is_healthy(index) for index in range(members)), "all of etcd to be healthy")
        if not has_ended():
            return True
        if "address already in use" not in self.log():
            raise AssertionError(f"a member of etcd has ended: {self.log()[-2000:]}")
        for process in self.processes:
            process.kill()
            process.wait()
        return False

    def serve_with(self, authority, *trusted):
        """Sets etcd's certificate from now on, and the CAs that it trusts from a member's next start."""
        ca, *files = self.files()
        with open(ca, "w", encoding="utf-8") as sink:
            sink.write(Authority.bundle(authority, *trusted))
        names = [f"IP:10.77.0.{host}" for host in range(1, self.hosts.count + 1)] if self.hosts else ["IP:127.0.0.1"]
        for source, target in zip(authority.sign("etcd", ",".join(names)), files):
            shutil.copy(source, target + ".new")
            os.rename(target + ".new", target)
        own = authority.sign("etcdctl")
        self.certificates = ["--cacert", authority.ca, "--cert", own[0], "--key", own[1]]

    def files(self):
        return [os.path.join(self.folder, name) for name in ("ca.crt", "etcd.crt", "etcd.key")]

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
        client, peer = (f"{scheme}://{self.address(index)}:{port}"
                        for scheme, port in zip((self.scheme, "http"), self.ports[index]))
        cluster = ",".join(f"m{number}=http://{self.address(number)}:{port}" for number, (_, port) in enumerate(self.ports))
        command = ["etcd", "--name", f"m{index}", "--data-dir", os.path.join(self.folder, f"m{index}"),
                   "--listen-client-urls", client, "--advertise-client-urls", client,
                   "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", cluster, "--initial-cluster-state", "new",
                   "--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync", *self.options]
        if self.scheme == "https":
            ca, certificate, key = self.files()
            command += ["--client-cert-auth", "--trusted-ca-file", ca, "--cert-file", certificate, "--key-file", key]
        with open(os.path.join(self.folder, f"m{index}.log"), "ab") as log:
            self.processes[index] = subprocess.Popen(self.on_host_of(index, command), stdout=log, stderr=subprocess.STDOUT)

    def controlling(self, *words, index=None):
        """A command of etcdctl, to all members or to one."""
        targets = range(len(self.ports)) if index is None else [index]
        endpoints = ",".join(f"{self.scheme}://{self.endpoint(each)}" for each in targets)
        return self.on_host_of(index or 0, ["etcdctl", "--endpoints", endpoints, *self.certificates, *self.credentials, *words])

    def control(self, *words, check=True, index=None):
        """Output of etcdctl."""
        patient = PATIENT if check else []  # else a member that isn't there is no answer, soon
        done = subprocess.run(self.controlling(*patient, *words, index=index), check=False, text=True, capture_output=True,
                              timeout=30 * SLOW, env={**os.environ, "ETCDCTL_API": "3"})
        if check and done.returncode != 0:
            raise AssertionError(f"etcdctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout + (done.stderr if not check else "")

    def is_healthy(self, index=0):
        return "is healthy" in self.control("endpoint", "health", check=False, index=index)

    def log(self):
        """What its members have said so far."""
        text = ""
        for index in range(len(self.ports)):
            with open(os.path.join(self.folder, f"m{index}.log"), encoding="utf-8") as log:
                text += log.read()
        return text

    def value(self, key):
        """{"value": …, "mod_revision": …, …} of a key, as etcd says it; None = there is none."""
        found = json.loads(self.control("get", key, "-w", "json")).get("kvs", [])
        return found[0] if found else None

    def wait_for_lease(self, seconds):
        """Until a lease of so long is over by etcd's own clock."""
        lease = self.control("lease", "grant", str(seconds)).split()[1]
        self.control("put", "--lease", lease, "/of-lease", "lasts")
        revision = self.value("/of-lease")["mod_revision"]
        deadline, seen = time.monotonic() + 20 * SLOW, b""
        # On a busy machine etcdctl's own token may be over before it watches: then it ends, and logs in anew.
        while b"DELETE" not in seen and time.monotonic() < deadline:
            with subprocess.Popen(self.controlling(*PATIENT, "watch", f"--rev={revision}", "/of-lease"),
                                  stdout=subprocess.PIPE, env={**os.environ, "ETCDCTL_API": "3"}) as watch:
                seen = read_until(watch.stdout, rb"DELETE\n", deadline - time.monotonic())
                watch.kill()
        assert b"DELETE" in seen, f"the lease isn't over in time: {seen}"

    def add_user(self, name, password, prefix):
        """From now on etcd has users: root, with the password "secret", and this one."""
        for words in (("user", "add", "root:secret"), ("user", "grant-role", "root", "root"),
                      ("user", "add", f"{name}:{password}"), ("role", "add", "jobs"),
                      ("role", "grant-permission", "--prefix=true", "jobs", "readwrite", prefix),
                      ("user", "grant-role", name, "jobs"), ("auth", "enable")):
            self.control(*words)
        self.credentials = ["--user", "root:secret"]

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
        """Has this member be etcd's leader; returns when the next lease has been renewed, because a new leader prolongs them all
        by its election timeout once."""
        if self.leader() == index:
            return
        status = json.loads(self.control("endpoint", "status", "-w", "json", index=index))
        self.control("move-leader", format(status[0]["Status"]["header"]["member_id"], "x"), index=self.leader())
        before = self.renewed(index)
        self.wait(lambda: self.renewed(index) > before, "a lease to be renewed")

    def renewed(self, index):
        """How many leases this member has renewed as the leader."""
        read = f"import urllib.request as r; print(r.urlopen('{self.scheme}://{self.endpoint(index)}/metrics').read().decode())"
        command = self.on_host_of(index, [sys.executable, "-c", read])
        metrics = subprocess.run(command, check=True, text=True, capture_output=True, timeout=30 * SLOW).stdout
        return int(float(re.search(r"^etcd_debugging_lease_renewed_total (\S+)$", metrics, re.MULTILINE).group(1)))

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
                raise AssertionError(f"no {what} in time")
