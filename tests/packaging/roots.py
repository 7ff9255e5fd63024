"""Other systems to build the wheel in and install it into: Debians of other years and processors, each a folder that a command
enters by chroot. A processor of another kind is qemu's (qemu-user-static, which the kernel starts: binfmt_misc).

They need root, and a network the first time; they are kept. A command has a mount namespace of its own, in which /tmp is empty
and the folders that it is given lie where they lie outside, so that nothing in a root changes."""

import os
import re
import shutil
import subprocess
import unittest

from package_case import CACHE, ROOT

ROOTS = os.environ.get("DDPRUN_TEST_ROOTS", os.path.join(CACHE, "roots"))
PACKAGES = ["python3", "python3-venv", "openssl", "iproute2", "procps"]
# Not the mirror of security updates too: it has none of bullseye for arm64.
MIRROR = "http://deb.debian.org/debian"
# A name that only they know, as their name service finds it.
OWN_NAME = "only-in-this-root"
# Builds for arm64, with the compiler of this processor and libraries of that one.
CROSS = "bookworm-cross"
QEMU = "/proc/sys/fs/binfmt_misc/qemu-aarch64"
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


def cross_packages():
    """What scripts/lib/setup.sh lists to build ddprun, its libraries as those of arm64."""
    with open(os.path.join(ROOT, "scripts", "lib", "setup.sh"), encoding="utf-8") as source:
        words = re.search(r"ddprun_build_packages=\(([^)]*)\)", source.read()).group(1).split()
    libraries = [f"{word}:arm64" for word in words if re.fullmatch(r"(lib|zlib).*-dev", word)]
    return ["crossbuild-essential-arm64", "ccache", "cmake", "git", "ninja-build", "pkg-config", "protobuf-compiler",
            "protobuf-compiler-grpc", "nlohmann-json3-dev", *libraries]


def cross_folders(builder):
    """What CROSS is entered with: this system's Python `builder`, with scikit-build-core, and what ccache knows."""
    cache = os.environ.get("CCACHE_DIR") or os.path.join(os.path.dirname(CACHE), "ccache")
    os.makedirs(cache, exist_ok=True)
    own = [os.path.dirname(os.path.dirname(os.path.realpath(builder))), CACHE, cache]
    return [each for each in own if not os.path.join(each, "").startswith("/usr/")]


def mmdebstrap(name, folder):
    """The command that makes the root `name`: bullseye, bookworm-arm64, CROSS."""
    debian, _, kind = name.partition("-")
    packages = PACKAGES + (cross_packages() if name == CROSS else [])
    architectures = {"": [], "arm64": ["--architectures=arm64"], "cross": ["--architectures=amd64,arm64"]}[kind]
    return ["mmdebstrap", "--variant=minbase", *architectures, f"--include={','.join(packages)}", debian, folder, MIRROR]


def make(name):
    """The folder with this Debian; made by the first caller. Errors: Missing."""
    if os.geteuid() != 0:
        raise Missing("other systems are entered by chroot: not root")
    if name.endswith("-arm64") and not os.path.exists(QEMU):
        raise Missing(f"{QEMU} isn't there: install qemu-user-static and arch-test, mount binfmt_misc and register it")
    folder = os.path.join(ROOTS, name)
    if os.path.isdir(folder):
        return folder
    if shutil.which("mmdebstrap") is None:
        raise Missing("mmdebstrap is not installed")
    os.makedirs(ROOTS, exist_ok=True)
    draft = f"{folder}.{os.getpid()}"
    made = subprocess.run(mmdebstrap(name, draft), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
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
