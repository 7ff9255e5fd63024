#!/usr/bin/env python3
"""seccomp.py NAME=ERRNO... -- command...: runs it where a filter refuses these system calls, as an old kernel (ENOSYS) or the
filter of an older container runtime (EPERM) does."""

import ctypes
import errno
import os
import struct
import sys

NUMBERS = {"pidfd_send_signal": 424, "pidfd_open": 434, "clone3": 435, "close_range": 436}  # the same on all architectures
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # classic BPF, as in seccomp(2)
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def program(refused):
    """Loads the number of the call; each pair after it returns an errno for one number, or is jumped over."""
    lines = [(LOAD, 0, 0, 0)]
    for word in refused:
        name, error = word.split("=")
        lines += [(JUMP_IF_EQUAL, 0, 1, NUMBERS[name]), (RETURN, 0, 0, REFUSE | getattr(errno, error))]
    return [*lines, (RETURN, 0, 0, ALLOW)]


def main():
    cut = sys.argv.index("--")
    lines = program(sys.argv[1:cut])
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    filter_of = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_of, 0, 0)):
        if libc.prctl(*call) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[cut + 1], sys.argv[cut + 1:])


if __name__ == "__main__":
    main()
