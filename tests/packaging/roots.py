"""Other systems to install the wheel into: Debians of other years, each a folder that a command enters by chroot.

They need root, and a network the first time; they are kept. A command has a mount namespace of its own, in which /tmp is empty
and the folders that it is given lie where they lie outside, so that nothing in a root changes."""

import os
import shutil
import subprocess
import unittest

from package_case import CACHE

ROOTS = os.environ.get("DDPRUN_TEST_ROOTS", os.path.join(CACHE, "roots"))
PACKAGES = ["python3", "python3-venv", "openssl", "iproute2", "procps"]
# A name that only they know, as their name service finds it.
OWN_NAME = "only-in-this-root"
# The oldest has glibc 2.31 and Python 3.9, the newest 2.41 and 3.13.
DEBIANS = ["bullseye", "bookworm", "trixie"]
# $1: the root; $2: how many folders follow, which are mounted; then the command. `cd`: to where it was called, if that is there.
ENTER = """root=$1; count=$2; shift 2; here=$PWD
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
while [ "$count" -gt 0 ]; do
  mkdir -p "$root$1"; mount --bind "$1" "$root$1"; shift; count=$((count - 1))
done
exec chroot "$root" sh -c 'cd "$1" 2>/dev/null; shift; exec "$@"' sh "$here" "$@"
"""


class Missing(Exception):
    """Says why a root can't be made or entered here."""


def make(name):
    """The folder with this Debian; made by the first caller. Errors: Missing."""
    if os.geteuid() != 0:
        raise Missing("other systems are entered by chroot: not root")
    folder = os.path.join(ROOTS, name)
    if os.path.isdir(folder):
        return folder
    if shutil.which("mmdebstrap") is None:
        raise Missing("mmdebstrap is not installed")
    os.makedirs(ROOTS, exist_ok=True)
    draft = f"{folder}.{os.getpid()}"
    made = subprocess.run(["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", name, draft],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        raise Missing(f"no Debian {name}: {made.stdout.strip().splitlines()[-1]}")
    with open(os.path.join(draft, "etc", "hosts"), "w", encoding="ascii") as sink:
        sink.write(f"127.0.0.1 localhost\n::1 localhost\n127.0.0.9 {OWN_NAME}\n")
    os.rename(draft, folder)
    return folder


def entering(name, folders):
    """What comes before a command to run it there, with these folders. Errors: unittest.SkipTest."""
    try:
        folder = make(name)
    except Missing as error:
        raise unittest.SkipTest(str(error)) from error
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", ENTER, "sh", folder, str(len(folders)), *folders]
