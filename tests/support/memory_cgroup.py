"""A memory cgroup of a test's own, of either version (cgroups(7))."""

import os
import unittest

V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


class MemoryCgroup:
    """Processes that enter() share `limit` bytes of RAM; a test that can't have a cgroup skips with the
    reason. Ends with close(), when it is empty."""

    def __init__(self, limit, name="one"):
        v2 = os.path.exists(os.path.join(V2, "cgroup.controllers"))
        mount = V2 if v2 else V1
        self._folder = os.path.join(mount, f"ddprun-test-{os.getpid()}-{name}")
        try:
            if v2:
                self._write(os.path.join(mount, "cgroup.subtree_control"), "+memory")
            os.mkdir(self._folder)
            self._write(self._file("memory.max" if v2 else "memory.limit_in_bytes"), limit)
        except OSError as error:
            self.close()
            raise unittest.SkipTest(f"no memory cgroup to be had here: {error}") from error
        if v2:
            self._write(self._file("memory.swap.max"), 0, needed=False)
        self._processes = self._file("cgroup.procs")

    def held(self):
        """The bytes that the processes have of their own, without the page cache."""
        with open(self._file("memory.stat"), encoding="ascii") as stat:
            numbers = dict(line.split() for line in stat)
        return int(numbers["anon"] if "anon" in numbers else numbers["total_rss"])

    def enter(self):
        """Moves this process, and so its later children, into the cgroup."""
        self._write(self._processes, 0)

    def close(self):
        if os.path.isdir(self._folder):
            os.rmdir(self._folder)

    def _file(self, name):
        return os.path.join(self._folder, name)

    @staticmethod
    def _write(path, value, needed=True):
        try:
            with open(path, "w", encoding="ascii") as sink:
                sink.write(str(value))
        except OSError:
            if needed:
                raise
