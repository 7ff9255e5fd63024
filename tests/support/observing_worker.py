#!/usr/bin/env python3
"""A worker that writes down all that it can see of how it was started, then waits like worker.py: observing_worker.py JOURNAL"""

import gc
import json
import logging
import multiprocessing
import os
import re
import pickle
import signal
import sys
import threading
import time
import warnings

# Variables of one worker, or of one generation.
OWN = ("DDPRUN_AGENT", "DDPRUN_GENERATION", "DDPRUN_PROGRESS", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE",
       "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID")


class Thing:
    pass


def text_of(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def stream(of):
    return [repr(of), of.line_buffering, of.write_through, of.isatty(), of.encoding, of.errors, of.buffer.name]


def tag_of(variables):
    return [name.rsplit(".", 2)[-1] for name in variables if name.startswith("DDPRUN_WORKER_TAG=")]


def in_child(queue):
    block = text_of("/proc/self/environ").split("\0")
    queue.put((os.environ["RANK"], [name for name in block if name.startswith("RANK=")], tag_of(block)))


def of_child(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    seen = queue.get()
    child.join()
    return seen


def descriptors():
    seen = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            seen[fd] = os.path.basename(os.readlink("/proc/self/fd/" + fd).partition(":")[0]).partition(".")[-1]
        except OSError:
            continue  # the one that read the folder
    return seen


def observe():
    block = [variable for variable in text_of("/proc/self/environ").split("\0") if variable]
    status = text_of("/proc/self/status").splitlines()
    main = vars(sys.modules["__main__"])
    return {
        "main": {name: repr(main[name]).partition(" at 0x")[0] for name in sorted(main) if name.startswith("__")},
        "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": sys.path, "flags": repr(sys.flags),
        "environ": {name: value for name, value in sorted(os.environ.items()) if name not in (*OWN, "DDPRUN_WORKER_TAG")},
        "block": sorted(re.sub("[^:=]*/marks(?=:|$)", "MARKS", variable) for variable in block
                        if variable.partition("=")[0] not in (*OWN, "DDPRUN_WORKER_TAG")),
        "tag": tag_of(block), "cmdline": text_of("/proc/self/cmdline"), "comm": text_of("/proc/self/comm"),
        "status": [line for line in status
                   if line.partition(":")[0] in ("Umask", "SigPnd", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Threads")],
        "limits": text_of("/proc/self/limits"), "oom": text_of("/proc/self/oom_score_adj"),
        "cgroup": text_of("/proc/self/cgroup").count("/"), "cwd": os.getcwd(), "descriptors": descriptors(),
        "session": os.getsid(0) == os.getpid() == os.getpgrp(), "nice": os.nice(0),
        "policy": os.sched_getscheduler(0), "affinity": sorted(os.sched_getaffinity(0)),
        "parent": text_of(f"/proc/{os.getppid()}/comm"),
        "signals": {number: repr(signal.getsignal(number)).partition(" at 0x")[0] for number in range(1, 32)},
        "threads": [thread.name for thread in threading.enumerate()],
        "main_thread": threading.current_thread() is threading.main_thread(),
        "gc": [gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()],
        "warnings": [repr(entry) for entry in warnings.filters], "logging": repr(logging.getLogger().handlers),
        "stdout": stream(sys.stdout), "stderr": stream(sys.stderr), "excepthook": repr(sys.excepthook),
        "finders": [repr(finder).partition(" at 0x")[0] for finder in sys.meta_path],
        "hook": [entry for entry in (*sys.modules, *sys.path_importer_cache) if "warm" in entry or entry == "sitecustomize"],
        "environ_type": repr(type(os.environ)), "pickle": pickle.dumps(Thing()).hex(),
        "young": [time.process_time() < 60, logging.LogRecord("", 0, "", 0, "", (), None).relativeCreated < 60000],
        "children": {method: of_child(method) for method in ("fork", "spawn", "forkserver")},
    }


if __name__ == "__main__":
    seen = observe()
    line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": "worker", "rank": int(os.environ["RANK"]),
            "generation": int(os.environ["DDPRUN_GENERATION"]), "world": int(os.environ["WORLD_SIZE"]), "seen": seen}
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with open(sys.argv[1], "a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")
    signal.sigwait([signal.SIGUSR1])
