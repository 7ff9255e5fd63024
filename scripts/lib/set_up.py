"""Installs what tests need beyond a build (scripts/setup): beside the build, finished before the first test."""

import concurrent.futures
import os
import subprocess
import threading
import time

from builds import ROOT
from suites import Suite

LOG = os.path.join(ROOT, "build", "setup.log")


def install(options):
    """Runs scripts/setup, with its output in LOG; returns the suite "set up", which has the log's end if that failed."""
    suite = Suite("set up")
    started = time.monotonic()
    os.makedirs(os.path.dirname(LOG), exist_ok=True)
    with open(LOG, "w", encoding="utf-8") as log:
        ended = subprocess.run([os.path.join(ROOT, "scripts", "setup"), *options], stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT, check=False)
    suite.seconds = time.monotonic() - started
    if ended.returncode != 0:
        suite.failed = 1
        with open(LOG, encoding="utf-8", errors="replace") as text:
            suite.problems.append(f"scripts/setup failed; the end of {LOG}:\n" + "".join(text.readlines()[-20:]))
    return suite


class SetUp:
    """Begins at once, unless `wanted` is false: then all is assumed to be installed. `options`: of scripts/setup."""

    def __init__(self, wanted, options):
        self._lock = threading.Lock()
        self._is_told = False
        self._ended = None
        if wanted:
            print(f"==> Beside the build: the environments for tests (log: {os.path.relpath(LOG, ROOT)})", flush=True)
            thread = concurrent.futures.ThreadPoolExecutor(1)
            self._ended = thread.submit(install, options)

    def wait(self):
        """Returns [the suite "set up"] in the first call, and in all calls if it failed; else []. Any thread may call this."""
        if self._ended is None:
            return []
        suite = self._ended.result()
        with self._lock:
            is_first, self._is_told = not self._is_told, True
        return [suite] if is_first or suite.failed else []
