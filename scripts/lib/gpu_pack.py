#!/usr/bin/env python3
"""Packs the archive that scripts/gpu_check runs from on a machine with a GPU: programs without debug information, and tests."""

import argparse
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "gpu-check"
MOST = 60 * 2 ** 20  # bytes
# All programs contain the same library. With a dictionary larger than a program, later ones only refer to it: 22 MiB, not 37.
COMPRESSION = {"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 64 * 2 ** 20}
# Targets of the build, and their paths; in a bundle all are in bin.
PROGRAMS = {
    "ddprun": "bin/ddprun", "session_probe": "bin/session_probe", "digits": "bin/digits", "char_gpt": "bin/char_gpt",
    "ddprun_nccl": "bin/libddprun_nccl.so",
    "nccl_host": "tests/gpu/libnccl_host.so", "fake_nvml": "tests/fake_nvml/libnvidia-ml.so.1",
    "worker_bench_checkpoint": "bin/worker_bench_checkpoint",
}
# Built only if there is a CUDA toolkit. A bundle needs them: without a toolkit --pack fails with that text.
OF_CUDA = ("ddprun_nccl",)
TUTORIAL = ROOT / "docs" / "tutorials" / "cpp.md"
# The libraries of a program that every machine with torch has.
EVERYWHERE = re.compile(r"/(libtorch\w*|libc10\w*|libgomp|libcu\w+|ld-linux-x86-64|"
                        r"lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+))(-\w+)?\.so")
SOURCES = ("tests/gpu", "tests/support", "tests/e2e", "scripts/lib", "python", "bench", "examples/torchrun_script")


def tracked(folders):
    """Files of the checkout, new ones too, without ignored ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in listed.splitlines() if name.endswith((".py", ".sh")) and (ROOT / name).exists()]


def commit():
    """The checkout's commit, with a plus if files have changed since."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain") else "")


def add_program(archive, name, folder):
    source = BUILD / PROGRAMS[name]
    target = folder / source.name
    subprocess.run(["strip", "-o", target, source], check=True)
    place = "bin/fake_nvml" if name == "fake_nvml" else "bin"
    archive.add(target, f"gpu_check/{place}/{source.name}")


def run(*command):
    """Runs a command and returns its output. Errors: exits with the output."""
    words = [str(word) for word in command]
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        sys.exit(f"gpu_check: {' '.join(words)}\n{result.stdout[-4000:]}")
    return result.stdout


def add_installed(archive, folder, prefix):
    """bin/installed: the tutorial's program, built against the package that is installed in `prefix`, where it looks for plug-ins
    on any machine; its libraries; the plug-ins."""
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "runtime")
    tutorial = TUTORIAL.read_text(encoding="utf-8")
    for text in re.findall(r"^```\w+\n((?:#|//) file: .*?)^```$", tutorial, re.MULTILINE | re.DOTALL):
        file = folder / re.match(r"(?:#|//) file: (\S+)\n", text).group(1)
        if not file.exists():  # the later one of a name is another program
            file.write_text(text, encoding="utf-8")
    run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", folder / "build", "--target", "train")
    archive.add(folder / "build" / "train", "gpu_check/bin/installed/train")
    for path in re.findall(r"=> (/\S+)", run("ldd", folder / "build" / "train")):
        if not EVERYWHERE.search(path):
            archive.add(os.path.realpath(path), f"gpu_check/bin/installed/lib/{os.path.basename(path)}")
    for plugin in (prefix / "lib" / "ddprun").glob("libddprun_*.so"):
        archive.add(plugin, f"gpu_check/bin/installed/plugins/{plugin.name}")


def pack(path, digits):
    missing = [name for name in PROGRAMS if not (BUILD / PROGRAMS[name]).exists()]
    if missing:
        because = "; the CUDA toolkit is needed" if set(missing) & set(OF_CUDA) else ""
        sys.exit(f"gpu_check: not built: {', '.join(missing)}{because} (log: build/gpu-check-build.log)")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, lzma.open(path, "wb", filters=[COMPRESSION]) as sink, \
            tarfile.open(fileobj=sink, mode="w") as archive:
        for name in PROGRAMS:
            add_program(archive, name, Path(folder))
        os.mkdir(Path(folder, "project"))
        prefix = Path(folder, "prefix")  # a name that no other bundle has
        add_installed(archive, Path(folder, "project"), prefix)
        for name in tracked(SOURCES):
            archive.add(ROOT / name, f"gpu_check/{name}")
        archive.add(ROOT / "scripts/gpu_check", "gpu_check/gpu_check")
        archive.add(digits, "gpu_check/digits.csv.gz")
        about = Path(folder, "about.json")
        facts = {"commit": commit(), "packed": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "prefix": str(prefix)}
        about.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        archive.add(about, "gpu_check/about.json")
    size = path.stat().st_size
    print(f"{os.path.relpath(path)}: {size / 2 ** 20:.1f} MiB. Where the GPU is: "
          f"python3 -m tarfile -e {path.name} && gpu_check/gpu_check")
    if size > MOST:
        sys.exit(f"gpu_check: {path} has {size} bytes, and {MOST} are what it may have")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", action="store_true", help="print what is to be built")
    parser.add_argument("--digits", type=Path)
    parser.add_argument("--file", type=Path, default=ROOT / "build" / "gpu_check.tar.xz")
    arguments = parser.parse_args()
    if arguments.targets:
        print(*PROGRAMS)
    else:
        pack(arguments.file, arguments.digits)


if __name__ == "__main__":
    main()
