#!/usr/bin/env python3
"""The worker of the drawn launches: writes down what it was given, meets the others in the job's store, and does its deed.

Only the standard library: it speaks the protocol of torch's TCPStore itself. PLAN in the environment is JSON with the fields
`deed`, `doer`, `amount`, `lines`, `journal` and `patience`; the journal is a folder, with two files for each start of a worker.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import struct
import sys

_VALIDATE, _SET, _ADD, _WAIT = b"\0", b"\1", b"\4", b"\6"
_MAGIC = 0x3C85F7CE
REFUSED = 97  # the status of a worker that can't meet the others


class Store:
    """A client of the workers' store."""

    def __init__(self, host, port, patience):
        self._socket = socket.create_connection((host, port), patience)
        atexit.register(self.close)  # else Python with PYTHONDEVMODE complains on stderr
        self._socket.sendall(_VALIDATE + struct.pack("<I", _MAGIC))

    def close(self):
        with contextlib.suppress(OSError):  # a worker may have closed all that is open
            self._socket.close()

    @staticmethod
    def _text(text):
        return struct.pack("<Q", len(text)) + text.encode()

    def _read(self, size):
        got = b""
        while len(got) < size:
            more = self._socket.recv(size - len(got))
            if not more:
                raise ConnectionError("the store has closed the connection")
            got += more
        return got

    def set(self, key, value):
        self._socket.sendall(_SET + self._text(key) + self._text(value))

    def add(self, key, amount):
        self._socket.sendall(_ADD + self._text(key) + struct.pack("<q", amount))
        return struct.unpack("<q", self._read(8))[0]

    def wait(self, key):
        self._socket.sendall(_WAIT + struct.pack("<Q", 1) + self._text(key))
        self._read(1)

    def meet(self, name, count):
        """Returns when `count` workers have called it. Errors: more than `count` workers came."""
        place = self.add(name, 1)
        if place > count:
            raise ConnectionError(f"{place} workers of {count} are at {name}")
        if place == count:
            self.set(name + "/all", "here")
        self.wait(name + "/all")


def lines_of(plan, attempt, rank, stream):
    """The whole lines, as bytes, that a worker writes to `out` or `err`."""
    found = []
    for number in range(plan["lines"]):
        length = 20 + (37 * number + 11 * rank + (5 if stream == "err" else 0)) % 180
        body = (chr(97 + (number + rank) % 26) * length).encode()
        if plan["deed"] == "bytes":
            body = b"\xff\xc3(\0" + body
        found.append(b"L~ %d %d %s %d " % (attempt, rank, stream.encode(), number) + body + b" ~L")
    return found


class Worker:
    def __init__(self):
        self.plan = json.loads(os.environ["PLAN"])
        self.rank = int(os.environ.get("RANK", -1))
        self.world = int(os.environ.get("WORLD_SIZE", -1))
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", -1))
        self.does = self.plan["doer"] in (-1, self.rank)
        self.deed = self.plan["deed"]
        self.store = None
        self.descriptors = [fd for fd in map(int, os.listdir("/proc/self/fd")) if is_open(fd)]

    def note(self, name, **fields):
        path = os.path.join(self.plan["journal"], f"{name}-{self.attempt}-{self.rank}-{os.getpid()}.json")
        with open(path, "w", encoding="utf-8") as sink:
            json.dump({"attempt": self.attempt, "rank": self.rank, **fields}, sink)

    def begin(self):
        try:
            folder = os.getcwd()
        except FileNotFoundError:
            folder = None
        self.note("began", environment={name: value.encode("utf-8", "surrogateescape").decode("latin-1")
                                        for name, value in os.environ.items()},
                  arguments=sys.argv[1:], folder=folder, leads=os.getpid() == os.getpgid(0) == os.getsid(0),
                  open=self.descriptors, inherited=inherited())
        try:
            self.store = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), self.plan["patience"])
            self.meet("begun")
        except (OSError, KeyError, ValueError) as error:
            at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            self.note("refused", why=f"{at}: {type(error).__name__}: {error}")
            sys.exit(REFUSED)

    def meet(self, name):
        self.store.meet(f"{name}/{self.attempt}", self.world)

    # ---------------------------------------------------------------- what it writes

    def write_lines(self):
        for fd, stream in ((1, "out"), (2, "err")):
            if not is_open(fd):
                continue
            lines = lines_of(self.plan, self.attempt, self.rank, stream)
            if self.deed == "fork" and self.does:
                self.write_forked(fd, lines)
            elif self.deed == "pieces" and self.does:
                for line in lines:
                    write(fd, line[:7])
                    write(fd, line[7:])
                    write(fd, b"\n")
            elif self.deed == "speed" and self.does:
                for begin in range(0, len(lines), 16):
                    write(fd, b"".join(line + b"\n" for line in lines[begin:begin + 16]))
            else:
                for number, line in enumerate(lines):
                    last = number == len(lines) - 1 and self.deed == "no_end"
                    write(fd, line if last else line + b"\n")

    @staticmethod
    def write_forked(fd, lines):
        """Writes each line by a child process."""
        children = []
        for line in lines:
            child = os.fork()
            if child == 0:
                write(fd, line + b"\n")
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)

    # ---------------------------------------------------------------- how it ends

    def end(self):
        amount = self.plan["amount"]
        if self.deed == "deaf" and not self.does:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.deed in _FAILING:
            if self.does and not (self.deed == "once" and self.attempt >= amount):
                _FAILING[self.deed](amount)
            elif self.plan["others"] == "linger" and self.deed != "once":
                signal.sigtimedwait({signal.SIGUSR1}, 4 * self.plan["patience"])  # the agent ends it
            elif self.deed == "once" and self.attempt < amount:
                signal.sigtimedwait({signal.SIGUSR1}, 4 * self.plan["patience"])
        elif self.deed == "apart":
            signal.sigtimedwait({signal.SIGUSR1}, 0.1 * self.rank)
        elif self.deed in _HELPERS and self.does:
            _HELPERS[self.deed](self, amount)

    def run(self):
        self.begin()
        self.write_lines()
        self.meet("written")
        self.end()


def write(fd, data):
    while data:
        data = data[os.write(fd, data):]


def is_open(fd):
    try:
        os.fstat(fd)
        return True
    except OSError:
        return False


def inherited():
    """What a process has from its parent: limits, signals that are ignored or blocked, and more; as proc(5) has them."""
    with open("/proc/self/limits", encoding="utf-8") as limits, open("/proc/self/status", encoding="utf-8") as status:
        text = limits.read() + status.read()
    with open("/proc/self/oom_score_adj", encoding="utf-8") as source:
        return f"{text}oom:\t{source.read()}"


def fail(_):
    raise RuntimeError("this worker fails")


def die(number):
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def segment(worker, number):
    """Memory that Python's resource tracker removes when its client is gone, which may die of a signal."""
    from multiprocessing import shared_memory
    worker.memory = shared_memory.SharedMemory(create=True, size=1 << 16)
    worker.memory.buf[0] = 1
    if number:
        # No worker is stopped before the tracker knows of its memory: otherwise nobody would remove that.
        if worker.plan["doer"] == -1:
            worker.meet("segment")
        die(number)


def tidier(worker, milliseconds):
    """A helper that removes a file of this worker's when it is gone, as torch_shm_manager does."""
    path = f"/dev/shm/tidied-{worker.attempt}-{worker.rank}"
    with open(path, "w", encoding="utf-8"):
        pass
    ends, worker.lifeline = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(worker.lifeline)
        os.read(ends, 1)
        signal.sigtimedwait({signal.SIGUSR1}, milliseconds / 1000)
        os.unlink(path)
        os._exit(0)


def straggler(_, __):
    """A helper in a session of its own that never ends."""
    if os.fork() == 0:
        os.setsid()
        signal.pause()


def upload(worker, milliseconds):
    """A helper in a session of its own that has something to finish after this worker's end."""
    if os.fork() == 0:
        os.setsid()
        signal.sigtimedwait({signal.SIGUSR1}, milliseconds / 1000)
        worker.note("uploaded")
        os._exit(0)


def record(_):
    """Writes the error file, as torchelastic's decorator does."""
    if os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as sink:
            stack = {"py_callstack": "a\nb", "timestamp": "1"}
            json.dump({"message": {"message": "RuntimeError: recorded", "extraInfo": stack}}, sink)
    sys.exit(1)


def execute(number):
    """Becomes another program."""
    os.execv(sys.executable, [sys.executable, "-c", f"raise SystemExit({number})"])


def close_all(_, __):
    os.closerange(0, 256)


def kill_group(_, __):
    """Ends its own process group, as scripts do that clean up; it ends well by itself."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.killpg(0, signal.SIGTERM)
    signal.pause()


def use_pool(_, method):
    import multiprocessing
    pool = multiprocessing.get_context(("fork", "spawn", "forkserver")[method]).Pool(2)
    if pool.map(abs, [-1, -2]) != [1, 2]:
        sys.exit(96)


def end_by_thread(_, milliseconds):
    import threading
    threading.Timer(milliseconds / 1000, lambda: None).start()


def stop_for_a_while(_, milliseconds):
    worker = os.getpid()
    if os.fork() == 0:
        signal.sigtimedwait({signal.SIGUSR1}, milliseconds / 1000)
        os.kill(worker, signal.SIGCONT)
        os._exit(0)
    os.kill(worker, signal.SIGSTOP)
    os.wait()


# Each of these ends the worker; the number is the plan's amount.
_FAILING = {
    "exit": sys.exit, "raise": fail, "signal": die, "once": lambda _: sys.exit(3),
    "text": lambda _: sys.exit("this worker gives up"),
    "os_exit": os._exit, "records": record, "deaf": lambda _: sys.exit(3), "execs": execute,
}
_HELPERS = {"closes": close_all, "kills_group": kill_group, "pool": use_pool, "thread": end_by_thread, "stops": stop_for_a_while,
            "segment": segment, "tidier": tidier, "straggler": straggler, "upload": upload}


if __name__ == "__main__":
    Worker().run()
