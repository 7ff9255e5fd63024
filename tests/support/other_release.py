"""Programs of other releases: copies of this one in which the version's bytes (base/version.cc.in) are others. They do what this
release does, under another name; what a release really does differently is for tests of the wire to say."""

import os
import re

from bed import DDPRUN

STAMP = re.compile(rb"ddprun release (\d+)\.(\d+)\.(\d+)\0")


def own_release():
    """This program's version, as numbers."""
    with open(DDPRUN, "rb") as source:
        found = set(STAMP.findall(source.read()))
    numbers, = found
    return tuple(map(int, numbers))


def program_of(folder, major=0, minor=0):
    """(a program whose numbers are higher by these, its version), without the third number, so that it isn't longer."""
    with open(DDPRUN, "rb") as source:
        program = source.read()
    stamp, = set(match.group() for match in STAMP.finditer(program))
    ours = own_release()
    version = f"{ours[0] + major}.{ours[1] + minor}"
    other = f"ddprun release {version}".encode()
    path = os.path.join(folder, f"ddprun-{version}")
    with open(path, "wb") as sink:
        sink.write(program.replace(stamp, other.ljust(len(stamp), b"\0")))
    os.chmod(path, 0o755)
    return path, version
