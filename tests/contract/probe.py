#!/usr/bin/env python3
"""A worker of the contract tests: writes down what it was given. Scripts of the tests import it.

As a script it only reports and ends. The journal is a file of JSON lines, named by CONTRACT_JOURNAL.
"""

import json
import os
import signal
import sys
import time

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
rank = int(os.environ.get("RANK", -1))
local_rank = int(os.environ.get("LOCAL_RANK", -1))
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", -1))


def tell(event="worker", **fields):
    """Appends one line to the journal: this worker's identity and how it was started."""
    line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, "rank": rank,
            "attempt": attempt, "world": int(os.environ.get("WORLD_SIZE", 0)),
            "group_rank": int(os.environ.get("GROUP_RANK", -1)), **fields}
    if event == "worker":
        line.update(pgid=os.getpgid(0), sid=os.getsid(0), cwd=os.getcwd(), arguments=sys.argv[1:],
                    environment=dict(os.environ))
    fd = os.open(os.environ["CONTRACT_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\n").encode())
    os.close(fd)


def wait():
    """Reports, and ends when a test says so: with 0 on SIGUSR1, with 3 on SIGUSR2."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    tell()
    sys.exit(0 if signal.sigwait({signal.SIGUSR1, signal.SIGUSR2}) == signal.SIGUSR1 else 3)


def linger(seconds):
    """A worker that takes this long for its work, unless a signal ends it."""
    signal.sigtimedwait({signal.SIGUSR1}, seconds)


if __name__ == "__main__":
    tell()
