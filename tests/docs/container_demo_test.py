#!/usr/bin/env python3
"""docker/: the runtime image is built, and the compose file's two nodes run as containers on hosts of their own.

The base image is made from Debian's packages, because no registry is asked; the programs are those of build/release, in place
of the builder stage, which would build them again. The layers below the programs, Debian and what the Dockerfile installs of it,
are kept for the next run until the Dockerfile changes; with --all they are made anew. Whatever is missing here skips the tests
with the reason.
"""

import glob
import hashlib
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import cluster  # noqa: E402
from bed import PATIENCE, ROOT, SLOW, WHOLE  # noqa: E402

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
# The program is of this system, and runs on no older one; the Dockerfile builds its own, and may name another.
SYSTEM = platform.freedesktop_os_release()
BASE = os.path.join(CACHE, "containers", f"debian-{SYSTEM.get('VERSION_ID')}.tar")
DOCKERFILE = os.path.join(ROOT, "docker", "Dockerfile")
LIMIT_MAX = 32768  # buildah's own number of processes on Debian 12, which it can't raise
STORE = "DDPRUN_TEST_CONTAINERS"  # where the image is; set once it is there
DRIVER = "DDPRUN_TEST_CONTAINERS_DRIVER"  # how its layers lie there
WHY_NOT = "DDPRUN_TEST_NO_CONTAINERS"
LONG = 3 * PATIENCE  # seconds; where layers are copied, containers start with half a gigabyte of that
# The kernel's limits and cgroups are this machine's, also where it is a container itself.
SETTINGS = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
cgroups = "disabled"
"""


class Missing(Exception):
    """Something that this machine doesn't have."""


def tool(name, *words):
    """A command line of podman or buildah. Images and containers stay in the store."""
    store = os.environ[STORE]
    settings = ["--cgroup-manager", "cgroupfs", "--events-backend", "file"] if name == "podman" else []
    return [name, "--storage-driver", os.environ[DRIVER], "--root", os.path.join(store, "store"), "--runroot",
            os.path.join(store, "run"), *settings, *map(str, words)]


def assert_status(status, command, result):
    if result.returncode != status:
        words = " ".join(command)
        raise AssertionError(f"{words} ended with {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-3000:]}")


def run(command, status=0):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if status is not None:
        assert_status(status, command, result)
    return result.stdout.strip()


def storage_driver(store):
    """Layers that lie upon each other where the kernel mounts such here, else copies."""
    parts = {name: os.path.join(store, name) for name in ("lowerdir", "upperdir", "workdir", "mounted")}
    for path in parts.values():
        os.makedirs(path)
    target = parts.pop("mounted")
    options = ",".join(f"{name}={path}" for name, path in parts.items())
    mounted = subprocess.run(["mount", "-t", "overlay", "none", "-o", options, target], capture_output=True, check=False)
    if mounted.returncode != 0:
        return "vfs"
    subprocess.run(["umount", target], check=True)
    return "overlay"


def make_base():
    """This Debian as an archive; made once."""
    if os.path.exists(BASE):
        return
    os.makedirs(os.path.dirname(BASE), exist_ok=True)
    draft = f"{BASE}.{os.getpid()}.tar"
    made = subprocess.run(["mmdebstrap", "--variant=minbase", SYSTEM.get("VERSION_CODENAME", ""), draft],
                          capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Missing(f"no base image: {made.stderr.strip().splitlines()[-1]}")
    os.replace(draft, BASE)


def build(context, dockerfile, tag, programs):
    limits = []  # newer buildahs raise them beyond what a small root may have
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = min(LIMIT_MAX, resource.getrlimit(number)[1] % (1 << 64))  # -1: without a limit
        limits += ["--ulimit", f"{name}={hard}:{hard}"]
    command = tool("buildah", "build", "--layers", "--isolation", "chroot", "--pull-never", *limits, "--build-context",
                   f"builder={programs}", "-f", dockerfile, "-t", tag, context)
    for _ in range(4):
        # buildah executes a copy of itself in memory, which it seals; the kernel refuses that while it moves one of the pages
        # about (fcntl(2), EBUSY). What was built until then is kept.
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if "sealing memfd copy: Device or resource busy" not in result.stderr:
            break
    assert_status(0, command, result)


def make_packages(store):
    """A folder for `store` with the base image, and with the image of the Dockerfile up to the programs as cached layers."""
    with open(DOCKERFILE, encoding="utf-8") as source:
        packages, _, _ = source.read().partition("COPY --from=builder")
    facts = os.stat(BASE)
    key = hashlib.sha256(f"{packages} {facts.st_mtime_ns} {facts.st_size} {os.environ[DRIVER]}".encode()).hexdigest()
    kept = os.path.join(CACHE, "containers", f"packages-{key[:16]}")
    if WHOLE or not os.path.exists(kept):
        container = run(tool("buildah", "from", "scratch"))
        run(tool("buildah", "add", "--quiet", container, BASE, "/"))
        run(tool("buildah", "commit", "--quiet", "--rm", container, "docker.io/library/debian:12-slim"))
        with tempfile.TemporaryDirectory() as nothing:
            head = os.path.join(nothing, "Dockerfile")
            with open(head, "w", encoding="utf-8") as sink:
                sink.write(packages)
            build(nothing, head, "packages", nothing)
        keep_packages(store, kept)
    else:
        run(["cp", "-a", kept, store])


def keep_packages(store, kept):
    """In the place of those that were kept before."""
    draft = f"{kept}.{os.getpid()}"
    run(["cp", "-a", store, draft])
    for old in glob.glob(os.path.join(CACHE, "containers", "packages-*")):
        if old != draft:
            shutil.rmtree(old, ignore_errors=True)
    try:
        os.rename(draft, kept)
    except OSError:  # another run was sooner
        shutil.rmtree(draft, ignore_errors=True)


def build_image():
    """Builds the unchanged runtime stage of the Dockerfile on that base, with the programs that were built here."""
    for name in ("podman", "buildah", "mmdebstrap"):
        if shutil.which(name) is None:
            raise Missing(f"no containers here: {name} is not installed")
    if os.geteuid() != 0:
        raise Missing("no containers here: not root")
    for program in ("ddprun", "digits"):
        if not os.path.exists(os.path.join(ROOT, "build", "release", "bin", program)):
            raise Missing(f"build/release/bin/{program} is not built")
    make_base()
    make_packages(os.path.join(os.environ[STORE], "store"))
    programs = os.path.join(os.environ[STORE], "builder")
    run([os.path.join(ROOT, "docker", "layout.sh"), os.path.join(programs, "opt", "ddprun")])
    build(ROOT, DOCKERFILE, "ddprun", programs)
    shutil.rmtree(programs)


def compose_file():
    """Words of the nodes' command, and their names; of a file that has no more than that in it."""
    with open(os.path.join(ROOT, "docker", "compose.yaml"), encoding="utf-8") as source:
        lines = [line.rstrip() for line in source]
    begin = lines.index("  command:") + 1
    words = []
    while lines[begin + len(words)].startswith("    - "):
        words.append(lines[begin + len(words)].removeprefix("    - "))
    return words, [line.split(": ")[1] for line in lines if line.startswith("    hostname: ")]


class Demo(cluster.ClusterTestCaseMixin, unittest.TestCase):
    hosts = 2

    @classmethod
    def setUpClass(cls):
        if os.environ.get(WHY_NOT):
            raise unittest.SkipTest(os.environ[WHY_NOT])
        super().setUpClass()
        settings = os.path.join(os.environ[STORE], "containers.conf")
        with open(settings, "w", encoding="utf-8") as sink:
            sink.write(SETTINGS)
        os.environ["CONTAINERS_CONF"] = settings
        subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], capture_output=True, check=False)
        probe = subprocess.run(tool("podman", "run", "--rm", "--network=none", "ddprun", "--version"), capture_output=True,
                               text=True, check=False)
        if "ddprun" not in probe.stdout:
            if os.path.exists("/run/.containerenv") or os.path.exists("/.dockerenv"):
                raise unittest.SkipTest(f"no containers within this one: {probe.stderr.strip()[-300:]}")
            raise AssertionError(f"the image doesn't run: {probe.stdout}{probe.stderr}")

    def setUp(self):
        self.words, self.names = compose_file()
        self.checkpoints = os.path.join(os.environ[STORE], "checkpoints")
        os.makedirs(self.checkpoints)
        os.chown(self.checkpoints, 1000, 1000)  # as a named volume takes it over from the image
        self.addCleanup(shutil.rmtree, self.checkpoints)

    def start(self, number, *words):
        """`compose up` of one service."""
        hosts = [f"--add-host={name}:10.77.0.{i}" for i, name in enumerate(self.names, 1)]
        name = self.names[number]
        run(tool("podman", "run", "--detach", "--name", name, "--hostname", name, f"--network=ns:/mnt/n{number + 1}", *hosts,
                 "--volume", f"{self.checkpoints}:/checkpoints", "--stop-timeout", 35, "ddprun", *words))
        self.addCleanup(run, tool("podman", "rm", "--force", name), None)

    def output(self, number):
        logs = subprocess.run(tool("podman", "logs", self.names[number]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        return logs.stdout

    def wait_for(self, number, text):
        """`podman logs -f` until a line has it."""
        logs = subprocess.Popen(tool("podman", "logs", "--follow", self.names[number]), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        too_late = threading.Timer(LONG, logs.kill)
        too_late.start()
        try:
            if not any(text in line for line in logs.stdout):
                self.fail(f"{self.names[number]} never said {text!r}:\n{self.output(number)}")
        finally:
            too_late.cancel()
            logs.kill()
            logs.wait()
            logs.stdout.close()

    def wait(self, number):
        """The exit status of a container."""
        waited = subprocess.run(tool("podman", "wait", self.names[number]), capture_output=True, text=True, timeout=LONG,
                                check=True)
        return int(waited.stdout)

    def test_a_node_is_lost_and_comes_back(self):
        for number in (0, 1):
            self.start(number, *self.words)
        self.wait_for(0, "step ")
        run(tool("podman", "kill", self.names[1]))
        self.wait_for(0, "on 1 worker, this one without a restart")
        run(tool("podman", "start", self.names[1]))
        self.assertEqual([0, 0], [self.wait(number) for number in (0, 1)], self.output(0) + self.output(1))
        self.assertRegex(self.output(0), r"final accuracy 9\d\.\d% .*world 2, generation 3")

    def test_a_container_that_is_stopped_ends_by_itself(self):
        self.start(0, "--standalone", "--no_python", "digits", "--epochs=100000")
        self.wait_for(0, "step ")
        began = time.monotonic()
        run(tool("podman", "stop", self.names[0]))
        self.assertLess(time.monotonic() - began, 30 * SLOW, "the runtime had to kill it")
        self.assertEqual(75, self.wait(0), self.output(0))
        self.assertIn("the workers save and end at step", self.output(0))


def main():
    if WHY_NOT in os.environ or STORE in os.environ:  # in the namespaces
        try:
            cluster.main()
        finally:
            shutil.rmtree(os.environ.get(STORE, ""), ignore_errors=True)
        return
    with_store = tempfile.mkdtemp(prefix="ddprun-containers-", dir="/var/tmp")
    os.environ[STORE] = with_store
    os.environ[DRIVER] = storage_driver(with_store)
    try:
        build_image()
    except Missing as missing:
        os.environ[WHY_NOT] = str(missing)
    except AssertionError:
        shutil.rmtree(with_store, ignore_errors=True)
        raise
    cluster.main()


if __name__ == "__main__":
    main()
