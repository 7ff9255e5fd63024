"""Forks of processes that have loaded already what takes long, as a node with --warm on starts its workers. Programs of the
worker runtime wait before their main(): LibTorch costs 0.3 s of a processor, and unloading it 0.15 (tests/worker/parked_probe.h
does so for C++). Of Python's scripts an interpreter waits that has imported torch, which costs 2 s."""

import ctypes
import itertools
import json
import os
import select
import signal
import socket
import subprocess

_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.environ["DDPRUN_PARKED_MAIN"]
_BECOME_SUBREAPER = 36  # prctl(2)
_channels = {}  # of each program that waits, by its path
_cpus = itertools.cycle(sorted(os.sched_getaffinity(0)))


class Fork:
    """One that runs; as much of subprocess.Popen as tests need."""

    def __init__(self, command, env, stdout, stderr):
        """`env` is the whole environment; of what libraries read while they are loaded, the first program's counts. Each has
        one CPU, the next one, so that ranks wait for each other asleep."""
        self.pid, self.status = self.start([str(word) for word in command], env, [stdout.fileno(), stderr.fileno()]), None
        self._ended = os.pidfd_open(self.pid)

    @staticmethod
    def start(command, env, output):
        program = command[0]
        if program not in _channels:
            _channels[program] = _park(lambda channel: [program], {**env, "LD_PRELOAD": _LIBRARY}, "DDPRUN_WARM")
        answers, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {**env, "DDPRUN_PROBE_ARGUMENTS": "\x1f".join(command)}
        request = [str(os.getpid()), str(next(_cpus)), "oe", *(f"{name}={value}" for name, value in variables.items()), ""]
        with answers:
            with its:
                socket.send_fds(_channels[program], [b"p" + "\0".join(request).encode()], [its.fileno(), *output])
            return _answered(answers, program)

    def poll(self):
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout=None):
        """Returns the status, as subprocess.Popen has it."""
        if self.status is None:
            ready = select.poll()
            ready.register(self._ended, select.POLLIN)
            if not ready.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ended)
        return self.status

    def kill(self):
        if self.status is None:
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)


class PythonFork(Fork):
    """The same of an interpreter and its script; on any CPU, and with torch's own end of it left out."""

    @staticmethod
    def start(command, env, output):
        python, *words = command
        if python not in _channels:
            _channels[python] = _park(lambda channel: [python, os.path.join(_HERE, "parked_python.py"), str(channel)], env)
        socket.send_fds(_channels[python], [json.dumps({"command": words, "environment": env}).encode()], output)
        return int(_channels[python].recv(4096))


def _park(command, env, variable=None):
    """Our end of the channel of one that waits, and ends with this process. `command` gets the number of the other end; so does
    the variable."""
    if ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0) != 0:  # its forks orphan themselves, and become ours
        raise OSError("prctl")
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        channel = its.fileno()
        env = {**env, variable: str(channel)} if variable else env
        subprocess.Popen(command(channel), env=env, pass_fds=[channel], start_new_session=True)
    return ours


def _answered(answers, program):
    """The process id of a program's fork, once all that can fail is behind it. This is the keeper's
    side of the protocol in launcher/keeper/parked_process.h."""
    pid = 0
    while answer := answers.recv(4096)[1:].decode():
        if answer.startswith("pid "):
            pid = int(answer.removeprefix("pid "))
        if answer == "set":
            answers.send(b"pgo")
            return pid
    raise AssertionError(f"{program} can't wait before its main(): {_channels[program].recv(4096)[1:].decode()}")
