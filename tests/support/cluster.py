"""A few "hosts" on one machine: network and UTS namespaces joined by a switch.

The test program re-executes itself once in namespaces of its own (user where it isn't root, pid, mount,
net): the switch lives in its network namespace, pids are its own, and when it ends, however, the
kernel takes everything away. Nothing outside is ever changed.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import unittest

_INSIDE = "DDPRUN_TEST_INSIDE_NAMESPACES"
_UNSHARE = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _unshare_command():
    return _UNSHARE if os.geteuid() == 0 else [_UNSHARE[0], "--user", "--map-root-user", *_UNSHARE[1:]]


def why_not():
    """Why namespaces can't be had here; '' when they can."""
    for tool in ("unshare", "nsenter", "ip", "nft"):
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            return f"no namespace hosts here: {tool} is not installed"
    probe = "mount -t tmpfs none /mnt && ip link add br0 type bridge && nft add table bridge t"
    result = subprocess.run([*_unshare_command(), "sh", "-c", probe], capture_output=True, text=True, check=False)
    return f"no namespace hosts here: {result.stderr.strip()}" if result.returncode != 0 else ""


def main():
    """unittest.main() within the namespaces; without them every test is skipped with the reason."""
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if os.environ.get(_INSIDE) != "1":
        os.environ["DDPRUN_TEST_WHY_NOT"] = why_not()
        os.environ[_INSIDE] = "1"
        if not os.environ["DDPRUN_TEST_WHY_NOT"]:
            sys.stdout.flush()
            os.execvp("unshare", [*_unshare_command(), sys.executable, *sys.argv])
    unittest.main(verbosity=2)


def run_inside(run):
    """run() within the namespaces; 77 with the reason where there are none."""
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if os.environ.get(_INSIDE) != "1":
        reason = why_not()
        if reason:
            print(reason)
            return 77
        os.environ[_INSIDE] = "1"
        sys.stdout.flush()
        os.execvp("unshare", [*_unshare_command(), sys.executable, *sys.argv])
    return run()


# Sends a datagram to each of the addresses, from the first one.
_TELL = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.bind((sys.argv[1], 0))
    for other in sys.argv[2:]:
        sender.sendto(b"", (other, 9))
"""


class Cluster:
    """Hosts n1 … nN at 10.77.0.1 … 10.77.0.N and fd00:77::1 … fd00:77::N; host names resolve on all of them."""

    def __init__(self, count):
        self.count = count
        self._folder = "/mnt"  # in this mount namespace only
        self._slowed = set()
        self._files = {}
        self._shifts = {}
        self._undo = []
        self._moved = []
        _run("mount", "-t", "tmpfs", "none", self._folder)
        hosts = os.path.join(self._folder, "hosts")
        with open(hosts, "w", encoding="utf-8") as sink:
            sink.write("127.0.0.1 localhost\n" + "".join(f"10.77.0.{i} n{i}\n" for i in range(1, count + 1)))
        _run("mount", "--bind", hosts, "/etc/hosts")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "br0", "type", "bridge")
        _run("ip", "link", "set", "br0", "up")
        _run("nft", "add table bridge cuts; add chain bridge cuts passing { type filter hook forward priority 0; }")
        for i in range(1, count + 1):
            self._add_host(i)

    def _add_host(self, i):
        with open(self._namespace(i), "wb"):
            pass
        _run("unshare", f"--net={self._namespace(i)}", "true")
        self._on(i, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{i}", "netns", str(os.getpid()))
        _run("ip", "link", "set", f"p{i}", "master", "br0", "up")
        self._on(i, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
        self._on(i, "addr", "add", f"fd00:77::{i}/64", "dev", "eth0", "nodad")
        self._on(i, "link", "set", "eth0", "up")
        self._on(i, "link", "set", "lo", "up")

    def _namespace(self, i):
        return os.path.join(self._folder, f"n{i}")

    def _on(self, i, *arguments):
        _run("nsenter", f"--net={self._namespace(i)}", "ip", *arguments)

    def command(self, i, command):
        """`command` as a process of host i; the chain of execs keeps the pid."""
        binds = "".join(f"mount --bind {source} {path} && " for path, source in self._files.get(i, {}).items())
        shift = ["--time", "--monotonic", str(self._shifts[i])] if i in self._shifts else []
        return ["nsenter", f"--net={self._namespace(i)}", "unshare", "--uts", *(["--mount"] if binds else []),
                *(["--fork", "--kill-child", *shift] if shift else []), "sh", "-c",
                f'{binds}hostname "$0" && exec "$@"', f"n{i}", *command]

    # ---------------------------------------------------------------- what hosts are like, until heal()

    def set_file(self, i, path, text):
        """Host i's own version of a file that is there."""
        source = os.path.join(self._folder, f"n{i}{path.replace('/', '_')}")
        with open(source, "w", encoding="utf-8") as sink:
            sink.write(text)
        self._files.setdefault(i, {})[path] = source

    def shift_clock(self, i, seconds):
        """Host i's CLOCK_MONOTONIC is ahead by so much; its processes are then children of what was started."""
        self._shifts[i] = seconds

    def on_host(self, i, *command, undo=None):
        """Runs a command in host i's network, and `undo` there when all is healed."""
        enter = ["nsenter", f"--net={self._namespace(i)}"]
        _run(*enter, *command)
        if undo is not None:
            self._undo.append([*enter, *undo])

    def only_ports(self, first, last):
        """Between hosts, connections to other TCP ports are dropped."""
        _run("nft", "add rule bridge cuts passing meta protocol ip tcp flags & (syn|ack) == syn "
             f"tcp dport != {first}-{last} drop")

    # ---------------------------------------------------------------- faults

    def pull_cable(self, i):
        """Host i's switch port goes down: both sides only hear silence."""
        _run("ip", "link", "set", f"p{i}", "down")

    def power_off(self, i):
        """Host i is gone: nobody hears a last word of it, and none of its processes is left."""
        self.pull_cable(i)
        network = os.stat(self._namespace(i)).st_ino
        while True:
            here = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _network_of(pid) == network]
            if not here:
                return
            for pid in here:
                _kill(int(pid))

    def power_on(self, i):
        """Host i's network is there again, as after a start of the machine."""
        _run("ip", "link", "set", f"p{i}", "up")

    def move_address(self, source, target):
        """Host `target` also gets the address of `source`, which is off, and announces it to its neighbors."""
        self._on(target, "addr", "add", f"10.77.0.{source}/24", "dev", "eth0")
        self._moved.append((source, target))
        self._on(target, "neigh", "flush", "dev", "eth0")  # asking for a neighbor announces the own address
        others = [f"10.77.0.{i}" for i in range(1, self.count + 1) if i not in (source, target)]
        self.on_host(target, sys.executable, "-c", _TELL, f"10.77.0.{source}", *others)

    def cut_one_way(self, source, target):
        """Nothing gets from `source` to `target` any more; the other way works."""
        _run("nft", f"add rule bridge cuts passing iifname p{source} oifname p{target} drop")

    def cut_port(self, port):
        """Nothing gets from host to host on connections to this TCP port; everything else does."""
        for protocol in ("ip", "ip6"):
            for side in ("sport", "dport"):
                _run("nft", f"add rule bridge cuts passing meta protocol {protocol} tcp {side} {port} drop")

    def lose(self, percent):
        """Each packet between two hosts is lost with this probability."""
        _run("nft", f"add rule bridge cuts passing numgen random mod 100 < {percent} drop")

    def lose_one_way(self, source, target, percent):
        """Each packet from `source` to `target` is lost with this probability; the other way is well."""
        _run("nft", f"add rule bridge cuts passing iifname p{source} oifname p{target} "
             f"numgen random mod 100 < {percent} drop")

    def slow_down(self, i, rate, latency="400ms"):
        """Host i sends no faster than `rate` ("256kbit"): more waits in its queue for up to `latency`."""
        self._tc(i, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", latency)
        self._slowed.add(i)

    def _tc(self, i, *arguments):
        _run("nsenter", f"--net={self._namespace(i)}", "tc", *arguments)

    def heal(self):
        _run("nft", "flush chain bridge cuts passing")
        for i in range(1, self.count + 1):
            _run("ip", "link", "set", f"p{i}", "up")
        while self._undo:
            _run(*self._undo.pop())
        while self._moved:
            source, target = self._moved.pop()
            self._on(target, "addr", "del", f"10.77.0.{source}/24", "dev", "eth0")
        self._files.clear()
        self._shifts.clear()
        while self._slowed:
            self._tc(self._slowed.pop(), "qdisc", "del", "dev", "eth0", "root")


class ClusterTestCaseMixin:
    """setUpClass makes the hosts, or skips."""

    hosts = 3

    @classmethod
    def setUpClass(cls):
        reason = os.environ.get("DDPRUN_TEST_WHY_NOT", "run through cluster.main()")
        if reason or os.environ.get(_INSIDE) != "1":
            raise unittest.SkipTest(reason)
        cls.cluster = shared_cluster(cls.hosts)

    def tearDown(self):
        self.cluster.heal()


_shared = {}


def shared_cluster(count):
    """One set of hosts for the whole program: tests end all their processes and heal all cuts."""
    if not _shared:
        _shared["cluster"] = Cluster(max(count, 4))
    return _shared["cluster"]


def _network_of(pid):
    """The inode of a process' network namespace; None where it has ended."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def _kill(pid):
    """Kills a process, and waits until it is dead, whichever process reaps it."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    select.select([pidfd], [], [])
    os.close(pidfd)


def _run(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
