#!/usr/bin/env python3
"""A machine of its own, in namespaces, on which launches are played one after the other.

A lane reads a launch a line from stdin and answers each with a line, what was seen; `Lanes` starts some of them. As pid 1 of
its own pids it finds every process that a launch leaves, whatever that has done to its environment and session, and
in file systems of its own every file.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "scripts", "lib")]

import cluster  # noqa: E402
from etcd import EtcdCluster  # noqa: E402
from launch import ADDRESSES, HOST, MEANINGS, Launch  # noqa: E402
from timeline import ends_within, state_of  # noqa: E402

_FOLDER = "/mnt"  # a file system of this lane
_WORK = _FOLDER + "/launch"
_FIRST_PORT = 29611
UNSHARE = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
# Each of these is a file system of the lane's own.
_OWN_FOLDERS = (_FOLDER, "/dev/shm", "/tmp")
_SEEN_FOLDERS = ("/dev/shm", "/tmp", _FOLDER + "/run")


def why_not(*needed):
    """Why lanes can't play here; '' when they can. `needed`: paths that launches need."""
    for path in map(os.path.realpath, (HERE, sys.executable, *needed)):
        if path.startswith(tuple(folder + "/" for folder in _OWN_FOLDERS)):
            return f"no drawn launches here: {path} lies where each lane has a file system of its own"
    return cluster.why_not()


def command_of_lane():
    words = UNSHARE if os.geteuid() == 0 else [UNSHARE[0], "--user", "--map-root-user", *UNSHARE[1:]]
    return [*words, sys.executable, os.path.join(HERE, "lane.py")]


def _sh(*lines):
    done = subprocess.run(["sh", "-ec", "\n".join(lines)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{'; '.join(lines)}: {done.stderr.strip()}")


def _children():
    """{pid: its words} of all processes here but this one; zombies are reaped, or count as gone."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        if int(entry) == os.getpid() or state_of(entry) in (None, "Z"):
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as source:
                found[int(entry)] = source.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            pass
    return found


def _read(path):
    with open(path, encoding="latin-1", newline="") as source:
        return source.read()


class Lane:
    def __init__(self):
        self.etcd = None
        self.kept = set()  # processes that stay between launches
        self.played = 0
        before = {folder: os.stat(folder).st_dev for folder in _OWN_FOLDERS}
        _sh(*(f"mount -t tmpfs -o mode=1777 none {folder}" for folder in _OWN_FOLDERS),
            "touch /mnt/hosts", "mount --bind /mnt/hosts /etc/hosts", f"hostname {HOST}",
            "ip link set lo up", "ip link add eth0 type veth peer name eth0-end",
            f"ip addr add {ADDRESSES['lan4']}/24 dev eth0", f"ip addr add {ADDRESSES['lan6']}/64 dev eth0 nodad",
            "ip link set eth0 up", "ip link set eth0-end up", f"ip route add {ADDRESSES['translated']}/32 dev eth0",
            "nft add table ip nat", "nft 'add chain ip nat out { type nat hook output priority -100; }'",
            f"nft add rule ip nat out ip daddr {ADDRESSES['translated']} dnat to {ADDRESSES['lan4']}")

        # A folder that isn't a file system of this lane is never cleared.
        if any(os.stat(folder).st_dev == device or not os.path.ismount(folder) for folder, device in before.items()):
            raise RuntimeError(f"one of {', '.join(_OWN_FOLDERS)} is not this lane's own")

    def serve(self):
        for line in sys.stdin:
            task = json.loads(line)
            seen = self.play(Launch(**task["launch"]), task["launcher"], task["patience"], task["environment"])
            print(json.dumps(seen), flush=True)

    def play(self, launch, launcher, patience, environment):
        """What was seen of a launch. `launcher`: its words; `patience`: seconds that it may take at all."""
        self.prepare(launch)
        ports = {"job": _FIRST_PORT + 2 * (self.played % 500)}
        self.played += 1
        if launch.rendezvous == "etcd":
            ports["etcd"] = self.etcd_endpoint()
        scripts = [launch.script_of(agent, launcher, f"{_WORK}/{agent}", ports, patience / 2) for agent in range(launch.agents)]
        started = time.monotonic()
        agents = [self.start(agent, text, environment) for agent, text in enumerate(scripts)]
        ended = [ends_within(agent.pid, started + patience - time.monotonic()) for agent in agents]
        took = time.monotonic() - started
        statuses = [agent.wait() if done else None for agent, done in zip(agents, ended)]
        running = self.others() if not all(ended) else {}
        left = {} if running else self.left(patience / 4)
        seen = {"statuses": [None if status is None else status if status >= 0 else 128 - status for status in statuses],
                "took": took, "scripts": scripts, "running": running, "left": left, "files": self.files(),
                "out": [_read(f"{_WORK}/{agent}/out") for agent in range(launch.agents)],
                "err": [_read(f"{_WORK}/{agent}/err") for agent in range(launch.agents)],
                "logs": [self.logs(agent) for agent in range(launch.agents)], "notes": self.notes(launch.agents),
                "before": [_read(f"{_WORK}/{agent}/before") for agent in range(launch.agents)]}
        self.clear(agents)
        return seen

    def prepare(self, launch):
        with open("/mnt/hosts", "w", encoding="utf-8") as sink:
            sink.write("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
            sink.writelines(f"{address} {HOST}.example {HOST}\n" for address in MEANINGS[launch.host_is])
        for agent in range(launch.agents):
            os.makedirs(f"{_WORK}/{agent}/journal")
        os.mkdir(_FOLDER + "/home")
        os.mkdir(_FOLDER + "/run", 0o700)

    def start(self, agent, text, environment):
        """An agent: a shell that becomes it."""
        folder = f"{_WORK}/{agent}"
        with open(folder + ".sh", "w", encoding="utf-8") as sink:
            sink.write(text)
        with open(folder + "/out", "ab") as out, open(folder + "/err", "ab") as err, open("/dev/null", "rb") as nothing:
            return subprocess.Popen(["sh", folder + ".sh"], stdin=nothing, stdout=out, stderr=err, cwd="/", env={
                **environment, "HOME": _FOLDER + "/home", "XDG_STATE_HOME": "", "XDG_RUNTIME_DIR": _FOLDER + "/run"})

    def others(self):
        return {pid: words for pid, words in _children().items() if pid not in self.kept}

    def left(self, patience):
        """Processes that outlive the agents, and are still there after `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            found = self.others()
            if not found:
                return {}
            gone = [pid for pid in found if ends_within(pid, deadline - time.monotonic())]
            if not gone:
                return found

    @staticmethod
    def files():
        found = []
        for top in _SEEN_FOLDERS:
            for base, folders, names in os.walk(top):
                found += [os.path.join(base, name) for name in names]
                found += [os.path.join(base, name) for name in folders if not os.listdir(os.path.join(base, name))]
        return sorted(found)

    @staticmethod
    def logs(agent):
        """{path: text} of the files that the launcher wrote below its working folder."""
        found = {}
        for base, _, names in os.walk(f"{_WORK}/{agent}"):
            for name in names:
                path = os.path.join(base, name)
                if "/attempt_" in path and os.path.isfile(path):
                    found[os.path.relpath(path, f"{_WORK}/{agent}")] = _read(path)
        return found

    @staticmethod
    def notes(agents):
        """What workers wrote down: a list for each agent."""
        found = []
        for agent in range(agents):
            folder = f"{_WORK}/{agent}/journal"
            notes = []
            for name in sorted(os.listdir(folder)):
                text = _read(os.path.join(folder, name))
                notes.append({"note": name.partition("-")[0], **(json.loads(text) if text else {})})
            found.append(notes)
        return found

    def clear(self, agents):
        for pid in self.others():
            os.kill(pid, signal.SIGKILL)
        for agent in agents:
            agent.wait()
        for pid in self.others():
            ends_within(pid, 5)
        self.reap()
        for top in (_WORK, _FOLDER + "/home", _FOLDER + "/run"):
            shutil.rmtree(top, ignore_errors=True)
        for top in ("/dev/shm", "/tmp"):
            for name in os.listdir(top):
                path = os.path.join(top, name)
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

    def reap(self):
        """Orphans that this lane has inherited, as pid 1."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in self.kept:
                return
            os.waitpid(found.si_pid, 0)

    def etcd_endpoint(self):
        if self.etcd is None:
            tempfile.tempdir = _FOLDER
            self.etcd = EtcdCluster(members=1)
            self.kept = {process.pid for process in self.etcd.processes}
        return self.etcd.endpoints


class Lanes:
    """Some lanes, each with one launch at a time. Threads: any number may play()."""

    def __init__(self, count):
        self._idle = []
        self._made = [self._start() for _ in range(count)]
        self._idle = list(self._made)

    @staticmethod
    def _start():
        return subprocess.Popen(command_of_lane(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def play(self, launch, launcher, patience, environment):
        lane = self._idle.pop()
        lane.stdin.write(json.dumps({"launch": launch.__dict__, "launcher": launcher, "patience": patience,
                                     "environment": environment}) + "\n")
        lane.stdin.flush()
        line = lane.stdout.readline()
        if not line:
            raise RuntimeError(f"a lane has ended with {lane.wait()}")
        self._idle.append(lane)
        return json.loads(line)

    def close(self):
        for lane in self._made:
            lane.stdin.close()
        for lane in self._made:
            lane.wait()
            lane.stdout.close()


if __name__ == "__main__":
    if os.getpid() != 1:
        sys.exit("this mounts, kills and deletes: Lanes start it in namespaces")
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    Lane().serve()
