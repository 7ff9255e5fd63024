#!/usr/bin/env python3
"""Forks callers that have torch already, with the shim in its way. Each line of the input is one, in JSON: what call() takes.
Answers with its exit status."""

import json
import os
import runpy
import sys
import traceback

import ddprun_torch

ddprun_torch.install()
import torch.distributed.run  # noqa: E402, F401  pylint: disable=unused-import,wrong-import-position


def call(script, output, folder, environment):
    """Runs a script as if it were started by itself; its exit status."""
    for path, flags, fds in (("/dev/null", os.O_RDONLY, [0]), (output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, [1, 2])):
        for fd in fds:
            os.dup2(os.open(path, flags, 0o644), fd)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:], sys.path[0] = [script], folder
    try:
        runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as end:
        return end.code or 0
    except BaseException:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os._exit(call(**json.loads(line)))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
