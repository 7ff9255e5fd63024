#!/usr/bin/env python3
"""A worker for tests: writes down what it was given, then does what its arguments say.

worker.py JOURNAL [wait | exit=N | die=SIGNAL | print=TEXT |
          complain=TEXT | error-file=TEXT | reach | mark=N | ignore-term | log-signals | only-rank=R | only-first]…

`wait` (the default) waits for SIGUSR1 (exit 0) or SIGUSR2 (exit 3), which a test sends to the pid in
the journal. `log-signals` writes each signal down instead, until one asks for the end. `only-rank=R`,
`only-first`: what follows is for rank R, for restart count 0; others wait. `mark=N` marks step N of
training, `mark=N+` N more at each attempt. `reach` connects to the
master's address and port and writes down how long that took, or why it failed.
"""

import json
import mmap
import os
import signal
import socket
import sys
import time

_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
          "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "DDPRUN_GENERATION")

LOGGED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
          signal.SIGRTMIN}


def write_line(path, event, **fields):
    line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, **fields}
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\n").encode())
    os.close(fd)


def log_signals(journal):
    """Writes each signal into the journal; exits with 0 at TERM, INT, HUP or QUIT."""
    while True:
        number = signal.sigwait(LOGGED)
        write_line(journal, "got", signal=number, rank=int(os.environ["RANK"]))
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            sys.exit(0)


def reach_master(journal):
    began = time.monotonic()
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=40).close()
        outcome = {"reached": True, "seconds": time.monotonic() - began}
    except OSError as error:
        outcome = {"reached": False, "error": str(error)}
    write_line(journal, "reach", rank=int(os.environ["RANK"]), **outcome)


def mark(step):
    """Marks a step with the lines of docs/PROGRESS.md."""
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1 if step.endswith("+") else 1
    with open(os.environ["DDPRUN_PROGRESS"], "r+b") as file:
        memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")[8] = 2 << 56 | int(step.rstrip("+")) * attempt


def main():
    journal, actions = sys.argv[1], sys.argv[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    # sigwait(3) is not left for Python's own handler, which would turn Ctrl-C into an exception.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if "log-signals" in actions:
        signal.pthread_sigmask(signal.SIG_BLOCK, LOGGED)
    if "ignore-term" in actions:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write_line(journal, "worker", host=os.uname().nodename, environment={n: os.environ.get(n) for n in _NAMES},
               generation=int(os.environ.get("DDPRUN_GENERATION", 0)), rank=int(os.environ.get("RANK", -1)),
               world=int(os.environ.get("WORLD_SIZE", 0)), group_rank=int(os.environ.get("GROUP_RANK", -1)),
               restart_count=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", -1)), arguments=actions)
    for action in actions:
        name, _, value = action.partition("=")
        if name == "only-rank" and os.environ.get("RANK") != value:
            break
        if name == "only-first" and os.environ.get("TORCHELASTIC_RESTART_COUNT") != "0":
            break
        if name == "log-signals":
            log_signals(journal)
        elif name == "print":
            sys.stdout.write(value + "\n")  # one piece: print() under `python -u` would write two
            sys.stdout.flush()
        elif name == "complain":
            sys.stderr.write(value + "\n")
            sys.stderr.flush()
        elif name == "error-file":
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="utf-8") as sink:
                json.dump({"message": {"message": value, "extraInfo": {
                    "py_callstack": "Traceback: in train\n" + value, "timestamp": "1700000000"}}}, sink)
        elif name == "mark":
            mark(value)
        elif name == "reach":
            reach_master(journal)
        elif name == "exit":
            sys.exit(int(value))
        elif name == "die":
            os.kill(os.getpid(), getattr(signal, value))
    sys.exit(0 if signal.sigwait({signal.SIGUSR1, signal.SIGUSR2}) == signal.SIGUSR1 else 3)


if __name__ == "__main__":
    main()
