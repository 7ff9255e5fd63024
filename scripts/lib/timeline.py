"""Follows JSON-lines files and processes without polling, and knows what a run left behind.

Shared by the demo, the tests and the benchmarks. Only the standard library; Linux only. Times are
CLOCK_MONOTONIC seconds, as the event log's "t".
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import time

TAG_VARIABLE = "DDPRUN_RUN_TAG"
# Jobs of tests don't show up in the developer's own `ddprun status --ended`.
os.environ["XDG_STATE_HOME"] = "/dev/null"

_libc = ctypes.CDLL(None, use_errno=True)
IN_CLOSE = 0x18
_IN_MODIFY = 0x00000002
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC


class TimelineError(Exception):
    """An awaited event didn't happen; the text names it and what was seen instead."""


class JsonLines:
    """One file of JSON lines that other processes append to; `lines` holds the whole ones so far."""

    def __init__(self, path):
        self.path = str(path)
        self.lines = []
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._rest = b""

    def read_new(self):
        while True:
            chunk = os.read(self._fd, 1 << 16)
            if not chunk:
                return
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            for text in whole:
                if text.strip():
                    self.lines.append(json.loads(text))

    def find(self, event=None, after=0.0, **fields):
        """Lines with this "event", "t" > after and these fields, oldest first. Values compare as text."""
        return [
            line for line in self.lines
            if (event is None or line.get("event") == event) and line.get("t", 0.0) > after
            and all(str(line.get(name)) == str(value) for name, value in fields.items())
        ]

    def close(self):
        os.close(self._fd)


class Follower:
    """Waits until files fulfil a condition. Wakes by inotify(7) and pidfds, never by a timer."""

    def __init__(self):
        self._inotify = _libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if self._inotify < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self.files = []

    def follow(self, path):
        lines = JsonLines(path)
        self.watch(lines.path)
        self.files.append(lines)
        return lines

    def watch(self, path, what=_IN_MODIFY):
        """Makes `wait` wake for changes of this file too, or for other events of inotify(7); for files that are no JSON lines."""
        if _libc.inotify_add_watch(self._inotify, str(path).encode(), what) < 0:
            raise OSError(ctypes.get_errno(), f"inotify_add_watch {path}")

    def refresh(self):
        for lines in self.files:
            lines.read_new()

    def fileno(self):
        """Readable after a change of a file, until clear()."""
        return self._inotify

    def clear(self):
        try:
            os.read(self._inotify, 1 << 16)
        except BlockingIOError:
            pass

    def wait(self, condition, what, timeout, alive=()):
        """Returns condition()'s first true value; it is asked after every change of a file.

        `alive`: Processes that must not end meanwhile. Errors: TimelineError after `timeout`
        seconds, or when one of them ended.
        """
        deadline = time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._inotify, select.POLLIN)
        for process in alive:
            poll.register(process.pidfd, select.POLLIN)
        while True:
            ended = [process for process in alive if process.ended()]
            self.refresh()
            value = condition()
            if value:
                return value
            if ended:
                raise TimelineError(f"{ended[0].name} ended with {ended[0].returncode} before: {what}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimelineError(f"not within {timeout:g} s: {what}")
            poll.poll(left * 1000)
            self.clear()

    def close(self):
        os.close(self._inotify)
        for lines in self.files:
            lines.close()


class Process:
    """A child with a name; a pidfd reports its end."""

    def __init__(self, name, argv, output=None, env=None, **options):
        """`output`: path that gets stdout and stderr; None = pipes kept by the caller's options."""
        self.name = name
        self.output = output
        self.started = time.monotonic()  # before its first word, however late this process is
        if output is not None:
            with open(output, "ab") as sink:
                self._child = subprocess.Popen(
                    argv, stdout=sink, stderr=subprocess.STDOUT, env=env, **{"stdin": subprocess.DEVNULL, **options})
        else:
            self._child = subprocess.Popen(argv, env=env, **options)
        self.pid = self._child.pid
        self.stdout = self._child.stdout
        self.stderr = self._child.stderr
        self.pidfd = os.pidfd_open(self.pid)

    @property
    def returncode(self):
        return self._child.returncode

    def ended(self):
        return self._child.poll() is not None

    def signal(self, number):
        if not self.ended():
            signal.pidfd_send_signal(self.pidfd, number)

    def wait(self, timeout):
        """The exit status (negative: signal). Errors: TimelineError after `timeout` seconds."""
        if not wait_readable(self.pidfd, timeout):
            raise TimelineError(f"{self.name} (pid {self.pid}) still runs after {timeout:g} s")
        return self._child.wait()

    def text(self):
        if self.output is None:
            return ""
        with open(self.output, encoding="utf-8", errors="replace") as source:
            return source.read()

    def close(self):
        """Kills it if it still runs. May be called again."""
        if self.pidfd < 0:
            return
        if not self.ended():
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            self._child.wait()
        for stream in (self._child.stdout, self._child.stderr, self._child.stdin):
            if stream is not None:
                stream.close()
        os.close(self.pidfd)
        self.pidfd = -1


def wait_readable(fd, timeout):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout) * 1000))


def ends_within(pid, timeout):
    """Whether a process, anybody's child, has ended (a zombie has), or does so within `timeout` seconds. `Follower.wait` isn't
    for this: no file changes then."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return wait_readable(pidfd, timeout)
    finally:
        os.close(pidfd)


def stat_of(pid):
    """The fields of /proc/PID/stat from the third one on (proc(5)). Errors: FileNotFoundError, ProcessLookupError."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
        return source.read().rpartition(")")[2].split()


def state_of(pid):
    """R, S, D, T, Z, …; None when there is no such process."""
    try:
        return stat_of(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def parent_of(pid):
    """The pid of a process' parent. Errors: as stat_of."""
    return int(stat_of(pid)[1])


def tagged(tag, variable=TAG_VARIABLE):
    """Processes with variable=tag in their environment, without zombies: {pid: command line}."""
    found = {}
    needle = f"{variable}={tag}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as source:
                if needle not in source.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as source:
                command = source.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if state_of(entry) not in (None, "Z"):
            found[int(entry)] = command
    return found


def leftovers(tag, within):
    """The processes of a run that remain after `within` seconds; {} as soon as none remains."""
    deadline = time.monotonic() + within
    while True:
        found = tagged(tag)
        if not found:
            return {}
        gone = False
        for pid in found:
            gone = ends_within(pid, deadline - time.monotonic()) or gone
        if not gone or time.monotonic() >= deadline:
            return tagged(tag)


def kill_tagged(tag, variable=TAG_VARIABLE):
    """Kills what a run left; for cleaning up after a failure."""
    for pid in tagged(tag, variable):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def memory_kib(pid):
    """(VmRSS, PSS) of a process in KiB."""
    rss = pss = 0
    with open(f"/proc/{pid}/status", encoding="utf-8") as source:
        for line in source:
            if line.startswith("VmRSS:"):
                rss = int(line.split()[1])
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as source:
        for line in source:
            if line.startswith("Pss:"):
                pss = int(line.split()[1])
    return rss, pss
