#!/usr/bin/env python3
"""The checks that need a compiler: clang-format, headers that compile alone, clang-tidy.

compiled.py {format|headers|tidy} --build DIR [--root DIR] [--files FILE…]

What passed once is remembered in ~/.cache/ddprun/lint under a digest of the file, the tool's version and,
but for clang-format, everything of ours that it includes and the command, so a second run takes a second.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from includes import reach  # noqa: E402
from tree import CODE_FOLDERS, PRODUCTION_FOLDERS, Tree  # noqa: E402

FORMATTED_AT_ONCE = 50
# Debian 12's. A later clang-format breaks other lines, and a later clang-tidy has more checks: there both are skipped.
CLANG_MAJOR = 14
SKIPPED = 77  # the exit status of a check that is skipped (CMakeLists.txt)


class Cache:
    def __init__(self, tree, tool):
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self._folder = os.path.join(base, "ddprun", "lint")
        os.makedirs(self._folder, exist_ok=True)
        self._version = subprocess.run([tool, "--version"], capture_output=True, check=True).stdout
        protos = "".join(tree.text(path) for path in tree.paths(("proto",), (".proto",)))
        self._common = self._version + protos.encode()
        self._tree = tree
        self._root = os.path.abspath(tree.root)

    def key(self, path, command, extra=""):
        digest = hashlib.sha256(self._common)
        for part in [*command, extra]:  # wherever the clone lies
            digest.update(part.replace(self._root, ".").encode() + b"\0")
        for name in sorted(self._reached(path)):
            digest.update(name.encode() + b"\0" + self._tree.text(name).encode())
        return digest.hexdigest()

    def key_of_text(self, *parts):
        """Of what sees one file only, wherever it lies."""
        return hashlib.sha256(self._version + b"\0".join(part.encode() for part in parts)).hexdigest()

    @functools.cached_property
    def _reached(self):
        return reach_in(self._tree)

    def passed(self, key):
        return os.path.exists(os.path.join(self._folder, key))

    def remember(self, key):
        with open(os.path.join(self._folder, key), "wb"):
            pass


def compile_commands(build, root):
    """{path relative to the root: argument list}, our own sources only."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as source:
        entries = json.load(source)
    commands = {}
    for entry in entries:
        path = os.path.relpath(entry["file"], root)
        if path.split("/")[0] in CODE_FOLDERS and path.endswith(".cc"):  # not nvcc's
            arguments = shlex.split(entry["command"])
            cached = [i for i, argument in enumerate(arguments) if os.path.basename(argument) == "ccache"]
            commands[path] = arguments[cached[0] + 1:] if cached else arguments
    return commands


def reach_in(tree):
    """A function: a file and all of ours that it includes, public headers too."""
    return reach({path: tree.text(path) for path in tree.paths(CODE_FOLDERS, (".h", ".cc"))})


def users_of(tree, commands):
    """{header: the first source of the build that includes it, at whatever distance}."""
    reached = reach_in(tree)
    users = {}
    for source in sorted(commands):
        for header in reached(source):
            users.setdefault(header, source)
    return users


def flags_for(path, commands, users):
    """Compiler and flags of the nearest source: same stem, same folder, one that includes it, then any folder above."""
    stem = path.rsplit(".", 1)[0] + ".cc"
    folder = path
    near = sorted(source for source in commands if os.path.dirname(source) == os.path.dirname(path))
    command = commands.get(stem) or commands.get(near[0] if near else users.get(path))
    while command is None and "/" in folder:
        folder = folder.rsplit("/", 1)[0]
        command = next((commands[p] for p in sorted(commands) if p.startswith(folder + "/")), None)
    if command is None:
        return None
    flags, skip = [], False
    for argument in command[1:]:
        if skip or argument in ("-c",) or argument.endswith(".cc"):
            skip = False
        elif argument in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif argument not in ("-MD", "-MMD"):
            flags.append(argument)
    return [command[0], *flags]


def run_all(jobs, cache, what):
    """jobs: [(path, command, key extra, stdin)]. Prints what fails; returns (run, cached, failed)."""
    todo, cached = [], 0
    for path, command, extra, stdin in jobs:
        key = cache.key(path, command, extra)
        if cache.passed(key):
            cached += 1
        else:
            todo.append((path, command, key, stdin))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        done = pool.map(
            lambda job: subprocess.run(job[1], input=job[3], capture_output=True, text=True, check=False), todo)
        for (path, _, key, _), result in zip(todo, done):
            if result.returncode == 0:
                cache.remember(key)
            else:
                failed += 1
                print(f"{what}: {path}\n{result.stdout}{result.stderr}".rstrip(), flush=True)
    print(f"{what}: {len(todo)} checked, {cached} unchanged since they passed, {failed} failed")
    return failed


def other_release(tool):
    """Why this tool doesn't judge the sources; "" if it does."""
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)\.", version)
    if found and int(found.group(1)) == CLANG_MAJOR:
        return ""
    release = found.group(1) if found else "of an unknown release"
    return f"{tool} {release} is installed; the sources are held to release {CLANG_MAJOR}"


def check_format(tree, arguments):
    """clang-format has nothing to change. It starts once for many files: a start takes longer than thirty files do."""
    cache = Cache(tree, "clang-format")
    style = tree.text(".clang-format")
    keys = {path: cache.key_of_text(style, tree.text(path)) for path in tree.paths(CODE_FOLDERS, (".h", ".cc"))
            if selected(path, arguments)}
    todo = [path for path, key in keys.items() if not cache.passed(key)]
    batches = [todo[at:at + FORMATTED_AT_ONCE] for at in range(0, len(todo), FORMATTED_AT_ONCE)]
    failed = set()
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        done = pool.map(lambda batch: subprocess.run(["clang-format", "--dry-run", "-Werror", *batch], cwd=tree.root,
                                                     capture_output=True, text=True, check=False), batches)
        for batch, result in zip(batches, done):
            if result.returncode != 0:
                print(f"format: {result.stdout}{result.stderr}".rstrip(), flush=True)
                named = {path for path in batch if re.search(rf"^{re.escape(path)}:", result.stderr, re.MULTILINE)}
                failed |= named or set(batch)
    for path in set(todo) - failed:
        cache.remember(keys[path])
    print(f"format: {len(todo)} checked, {len(keys) - len(todo)} unchanged since they passed, {len(failed)} failed")
    return len(failed)


def check_headers(tree, arguments):
    """Every header compiles alone."""
    commands = compile_commands(arguments.build, tree.root)
    cache = Cache(tree, "g++")
    users = users_of(tree, commands)
    jobs = []
    for path in tree.paths(PRODUCTION_FOLDERS, (".h",)):
        flags = flags_for(path, commands, users)
        if not selected(path, arguments):
            continue
        if flags is None:
            print(f"headers: {path} skipped: nothing of its folder is part of this build")
            continue
        jobs.append((path, [*flags, "-fsyntax-only", "-x", "c++", "-"], "", f'#include "{path}"\n'))
    return run_all(jobs, cache, "headers")


def check_tidy(tree, arguments):
    """clang-tidy with .clang-tidy over the production sources."""
    commands = compile_commands(arguments.build, tree.root)
    cache = Cache(tree, "clang-tidy")
    config = tree.text(".clang-tidy")
    jobs = [(path, ["clang-tidy", "--quiet", "-p", arguments.build, "--extra-arg=-Wno-unknown-warning-option",
                    os.path.join(tree.root, path)], config + " ".join(commands[path]), None)
            for path in sorted(commands) if path.startswith(PRODUCTION_FOLDERS) and path in tree and
            selected(path, arguments)]
    return run_all(jobs, cache, "tidy")


def selected(path, arguments):
    return not arguments.files or path in arguments.files


def main():
    checks = {"format": check_format, "headers": check_headers, "tidy": check_tidy}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=checks)
    parser.add_argument("--build", required=True)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--files", nargs="*", default=[])
    arguments = parser.parse_args()
    tools = {"format": "clang-format", "tidy": "clang-tidy"}
    reason = other_release(tools[arguments.check]) if arguments.check in tools else ""
    if reason:
        print(reason)
        return SKIPPED
    tree = Tree.from_directory(os.path.abspath(arguments.root))
    return 1 if checks[arguments.check](tree, arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
