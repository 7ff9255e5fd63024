"""TCP ports of the loopback for a test's services."""

import functools
import os
import random
import socket
import subprocess
import sys

# What free_port() keeps.
_held = []


@functools.lru_cache
def private_network():
    """The words before a command that give it a loopback of its own; none where that can't be had.

    Default ports (29400, 29500) are then free, however many jobs run side by side.
    """
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    words = [*unshare, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    works = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return words if works else []


def enter_private_network():
    """Starts this program anew in a network of its own, where that can be had."""
    if private_network() and os.environ.get("DDPRUN_TEST_NETWORK") != "private":
        os.environ["DDPRUN_TEST_NETWORK"] = "private"
        os.execvp(private_network()[0], [*private_network(), sys.executable, *sys.argv])


def silent_port():
    """A TCP port of the loopback where nobody listens, or can as long as the socket is open that comes with it. Below those that
    the kernel gives to connections and to port 0: else another agent's own sockets may take it before the service listens."""
    while True:
        port = random.randrange(20000, 29000, 2)
        nobody = socket.socket()
        try:
            nobody.bind(("127.0.0.1", port))
        except OSError:
            nobody.close()
            continue
        return port, nobody


def free_port():
    """A TCP port that is the caller's until this process ends: no other test is given it, nor the next one, which is odd. It
    is held by a socket that doesn't listen: connections are refused, and a program that sets SO_REUSEADDR, as services do, can
    listen there (socket(7))."""
    port, nobody = silent_port()
    nobody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: two that set it before they bind may share a port
    _held.append(nobody)
    return port
