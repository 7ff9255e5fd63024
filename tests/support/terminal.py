"""A program on a pseudo terminal."""

import fcntl
import os
import re
import struct
import termios
import time

from bed import PATIENCE
from timeline import wait_readable


class Terminal:
    """A pseudo terminal with a program on it, and what that wrote."""

    def __init__(self, bed, command, columns=80, rows=24, env=None):
        self.master, self.slave = os.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.bytes = b""
        # The terminal is the program's controlling one, so that a new size is announced by a signal.
        self.process = bed.start_process(
            "top", command, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True, env=env,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys)

    def read(self, timeout):
        if not wait_readable(self.master, timeout):
            return False
        self.bytes += os.read(self.master, 1 << 16)
        return True

    def screens(self):
        """Each is a list of lines, without what steers the terminal."""
        frames = self.bytes.split(b"\x1b[H")[1:]
        complete = [frame.split(b"\x1b[J")[0] for frame in frames if b"\x1b[J" in frame]
        return [re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", frame).decode().split("\r\n") for frame in complete]

    def wait(self, condition, what):
        """The first screen from the last one on for which the condition holds."""
        deadline = time.monotonic() + PATIENCE
        seen = max(len(self.screens()) - 1, 0)
        while time.monotonic() < deadline:
            for screen in self.screens()[seen:]:
                if condition(screen):
                    return screen
            self.read(deadline - time.monotonic())
        raise AssertionError(f"no screen with {what}; the last: {self.screens()[-1:]}")

    def close(self):
        os.close(self.master)
        os.close(self.slave)
