#!/usr/bin/env python3
"""An interpreter that has torch, and forks itself for each script that it is asked for through the socket whose number is its
argument: in JSON what become() takes, with the descriptors of the output. Answers with the process id; the fork is an orphan."""

import json
import os
import runpy
import socket
import sys
import traceback

import torch.distributed  # noqa: F401  pylint: disable=unused-import
import torch.nn.parallel  # noqa: F401  pylint: disable=unused-import


def become(command, environment, output):
    for fd, target in zip(output, (1, 2)):
        os.dup2(fd, target)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = command
    sys.path[0] = os.path.dirname(command[0])
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    except BaseException:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
        return 1
    return 0


def main():
    channel = socket.socket(fileno=int(sys.argv[1]))
    while True:
        asked, output, _, _ = socket.recv_fds(channel, 1 << 20, 2)
        if not asked:
            return
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                status = become(**json.loads(asked), output=output)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
            os.write(tell, str(pid).encode())
            os._exit(0)
        os.waitpid(between, 0)  # from now on it is an orphan
        channel.send(os.read(told, 100))
        for fd in (told, tell, *output):
            os.close(fd)


if __name__ == "__main__":
    main()
