#!/usr/bin/env python3
"""Runs the checks of tests/gpu, each with a limit of its own; the last line says how many passed and failed."""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "gpu"), str(ROOT / "scripts" / "lib")]

from checks import CHECKS  # noqa: E402
from timeline import ends_within, kill_tagged, tagged  # noqa: E402

FOLDER = ROOT / "tests" / "gpu"  # of the checks
IN_BUNDLE = (ROOT / "about.json").exists()
BUILD = ROOT / "build" / "gpu-check"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddprun"
LIMIT = 480  # seconds for all checks
TWINS_SLOWER = 4  # so many times the limits: two processors, perhaps beside other work
ROUNDS = 3
TAG = "GPU_CHECK_TAG"  # in the environment of all processes of a check; the tests' beds remove DDPRUN_*
OF_CARD = ("name", "driver_version", "memory.total", "power.limit", "clocks.max.sm", "mig.mode.current")


class NothingToCheckWith(Exception):
    """The machine or the bundle lacks something; the text says what, and what to do."""


def python_with_torch():
    """The path of a Python with torch, and torch's folder, found without importing torch."""
    find = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
    of_checkout = [] if IN_BUNDLE else [str(CACHE / "py-full/bin/python3")]
    for python in (sys.executable, shutil.which("python3"), *of_checkout):
        if python is None or not os.access(python, os.X_OK):
            continue
        answer = subprocess.run([python, "-c", find], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return python, Path(answer.stdout.strip())
    raise NothingToCheckWith("no python3 with torch: put one first on PATH")


def environment(python, torch, place):
    """The environment of checks and their jobs (tests/gpu/gpu_bed.py)."""
    def program(in_bundle, in_build):
        path = ROOT / "bin" / in_bundle if IN_BUNDLE else BUILD / in_build
        return str(path) if path.exists() else ""
    if not program("ddprun", "bin/ddprun"):
        raise NothingToCheckWith(f"{BUILD}/bin/ddprun isn't built: scripts/gpu_check --pack")
    paths = [str(torch / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **os.environ, "DDPRUN_GPU_PLACE": place, "DDPRUN_GPU_PYTHON": python, "DDPRUN_BIN": program("ddprun", "bin/ddprun"),
        "DDPRUN_SESSION_PROBE": program("session_probe", "bin/session_probe"),
        "DDPRUN_EXAMPLES_BIN": program("", "bin"), "DDPRUN_DIGITS": str(ROOT / "digits.csv.gz" if IN_BUNDLE else
                                                                        CACHE / "digits/digits.csv.gz"),
        "DDPRUN_NCCL_PLUGIN": program("libddprun_nccl.so", "bin/libddprun_nccl.so"),
        "DDPRUN_NCCL_HOST": program("libnccl_host.so", "tests/gpu/libnccl_host.so"),
        "DDPRUN_FAKE_DRIVER": program("fake_nvml", "tests/fake_nvml"),
        "DDPRUN_INSTALLED": program("installed", "installed"),
        # Programs with LibTorch use the LibTorch of this machine.
        "LD_LIBRARY_PATH": ":".join(path for path in paths if path), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }


def machine(python):
    """Facts of the machine, for the results. Errors: NothingToCheckWith."""
    versions = ("import json, platform, torch; nccl = torch.cuda.nccl.version() if torch.cuda.is_available() else None\n"
                "print(json.dumps({'python': platform.python_version(), 'torch': torch.__version__, 'cuda': torch.version.cuda,"
                " 'nccl': nccl and '.'.join(map(str, nccl))}))")
    answer = subprocess.run([python, "-c", versions], capture_output=True, text=True, check=False, timeout=120)
    if answer.returncode != 0:
        raise NothingToCheckWith(f"{python} can't import its torch:\n{answer.stderr[-2000:]}")
    facts = {"python3": python, "kernel": platform.release(), "cpus": os.cpu_count(), **json.loads(answer.stdout)}
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={','.join(OF_CARD)}", "--format=csv,noheader"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.splitlines()
        facts["cards"] = [dict(zip(OF_CARD, (field.strip() for field in line.split(",")))) for line in answer]
    return facts


def preloadable(library, folder):
    """A path without a blank or colon, at which ld.so splits LD_PRELOAD: in `folder`, if need be."""
    return shutil.copy(library, folder) if re.search(r"[\s:]", library) else library


def end_jobs(tag):
    """Ends the processes that a check has left; returns what its jobs had printed, from the folders in which they ran."""
    told, beds = [], set()
    for pid in tagged(tag, TAG):
        try:
            beds.add(os.readlink(f"/proc/{pid}/cwd"))
        except OSError:
            pass
    for bed in sorted(bed for bed in beds if os.path.basename(bed).startswith("ddprun-test-")):
        for path in sorted(Path(bed).glob("*.out")):
            told.append(f"---- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-3000:]}")
    for _ in range(ROUNDS):  # an agent that still ran may have started another
        left = tagged(tag, TAG)
        kill_tagged(tag, TAG)
        for pid in left:
            ends_within(pid, 5)
    for bed in beds:
        if os.path.basename(bed).startswith("ddprun-test-"):
            shutil.rmtree(bed, ignore_errors=True)
    return "\n".join(told)


def tag_of(check):
    return f"{os.getpid()}.{check.name}"


def run_check(check, variables, limit, why):
    """Runs a check; returns {status, seconds, figures, skipped, reason, text}. `why`: the reason of its limit."""
    began = time.monotonic()
    tag = tag_of(check)
    command = [sys.executable, FOLDER / f"{check.name}_check.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, env={**variables, TAG: tag}, start_new_session=True) as process:
        try:
            text, _ = process.communicate(timeout=limit)
            status = "passed" if process.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = end_jobs(tag)
            text, _ = process.communicate()
            status = "failed"
            text += f"\n{output}\nit was ended after {limit:.0f} s, {why}\n"
    figures = {line["name"]: {"value": line["value"], "unit": line["unit"]}
               for line in map(json.loads, re.findall(r"FIGURE (\{.*\})$", text, re.MULTILINE))}
    return {"name": check.name, "status": status, "seconds": round(time.monotonic() - began, 1), "figures": figures,
            "skipped": re.findall(r"skipped ['\"](.*)['\"]$", text, re.MULTILINE),
            "reason": reason_of(text) if status == "failed" else "", "text": text}


def reason_of(text):
    """The first error's last line, or the last line of all."""
    errors = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|Wrong)\b.*$", text, re.MULTILINE)
    lines = errors or text.split("\n")
    return next((line for line in (errors or reversed(lines)) if line.strip()), "")[:300]


def say(text):
    """Prints a line. If nobody reads the output any more, the results are still written."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Stopped(Exception):
    """The run was stopped by a signal."""


class Run:
    """A run of the checks in the order of checks.py; a failed check doesn't stop the next."""

    def __init__(self, arguments, place, variables):
        self.variables, self.place, self.limit = variables, place, arguments.limit
        self.checks = [check for check in CHECKS if not arguments.only or check.name in arguments.only]
        self.results = []

    def run(self):
        """Errors: Stopped, with the results so far."""
        began = time.monotonic()
        for check in self.checks:
            left = self.limit - (time.monotonic() - began)
            limit = check.limit * (TWINS_SLOWER if self.place == "cpu" else 1)
            if left <= 1:
                result = self.not_run(check, f"all checks together have {self.limit:g} s")
            else:
                why = "its limit" if limit <= left else f"as all checks together have {self.limit:g} s"
                result = run_check(check, self.variables, min(limit, left), why)
            self.results.append(result)
            self.say(result)

    def stop(self, number, _frame):
        """The handler of signals, which may come while a check is being started: then only this can end the check."""
        for check in self.checks:
            end_jobs(tag_of(check))
        raise Stopped(signal.Signals(number).name)

    def stopped(self, by):
        """Adds the remaining checks to the results, as not run."""
        self.results += [self.not_run(check, f"stopped by {by}") for check in self.checks[len(self.results):]]

    @staticmethod
    def not_run(check, reason):
        return {"name": check.name, "status": "not run", "seconds": 0, "figures": {}, "skipped": [], "reason": reason, "text": ""}

    @staticmethod
    def say(result):
        figures = ", ".join(f"{name} {of['value']:g} {of['unit']}".rstrip() for name, of in result["figures"].items())
        say(f"{result['status']:7} {result['name']:12} {result['seconds']:6.1f} s  {figures}{result['reason']}")
        for reason in result["skipped"]:
            say(f"        skipped: {reason}")
        if result["status"] == "failed":
            say("\n".join("        " + line[:300] for line in result["text"].rstrip().splitlines()[-12:]))

    def count(self, status):
        return sum(result["status"] == status for result in self.results)

    def verdict(self):
        left_out = f", {self.count('not run')} not run" if self.count("not run") else ""
        return f"{self.count('passed')} passed, {self.count('failed')} failed{left_out}"

    def write(self, folder, facts):
        about = json.loads((ROOT / "about.json").read_text(encoding="utf-8")) if IN_BUNDLE else {}
        written = {"when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "place": self.place, "bundle": about, "machine": facts,
                   "limit": self.limit, "passed": self.count("passed"), "failed": self.count("failed"),
                   "not_run": self.count("not run"),
                   "checks": [{key: value for key, value in result.items() if key != "text"} for result in self.results]}
        (folder / "results.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
        texts = [f"==== {result['name']}\n{result['text']}" for result in self.results if result["status"] == "failed"]
        (folder / "failures.txt").write_text("\n".join(texts), encoding="utf-8")


def seconds(text):
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError
    return value


def parse_arguments():
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    parser.add_argument("--list", action="store_true", help="the checks, the most important first")
    parser.add_argument("--only", action="append", metavar="NAME[,NAME…]", help="these checks (may be repeated)")
    parser.add_argument("--place", choices=("gpu", "cpu"), help="cpu: twins over Gloo; by default gpu where one is")
    parser.add_argument("--out", type=Path, default=Path("gpu_check_results"), help="for results.json and failures.txt")
    parser.add_argument("--limit", type=seconds, metavar="SECONDS",
                        help="for all checks together; by default 480, for twins four times that")
    arguments = parser.parse_args()
    names = [check.name for check in CHECKS]
    arguments.only = [name for word in arguments.only or () for name in word.split(",")]
    for name in arguments.only:
        if name not in names:
            parser.error(f"--only '{name}': there are {', '.join(names)}")
    return arguments


def prepare(arguments, has_gpu):
    """(place, python, variables). Errors: NothingToCheckWith."""
    place = arguments.place or ("gpu" if has_gpu else "cpu")
    if place == "gpu" and not has_gpu:
        raise NothingToCheckWith("--place gpu: there is no NVIDIA GPU here (/dev/nvidiactl can't be read)")
    arguments.limit = arguments.limit or LIMIT * (TWINS_SLOWER if place == "cpu" else 1)
    python, torch = python_with_torch()
    variables = environment(python, torch, place)
    try:  # before the checks, because their results would be lost
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "results.json").write_text("", encoding="utf-8")
    except OSError as problem:
        raise NothingToCheckWith(f"--out {arguments.out}: {problem.strerror}: give a folder for the results") from problem
    return place, python, variables


def main():
    arguments = parse_arguments()
    if arguments.list:
        for check in CHECKS:
            print(f"{check.name:12} {check.limit:4d} s  {check.what}")
        return 0
    has_gpu = os.access("/dev/nvidiactl", os.R_OK)
    try:
        place, python, variables = prepare(arguments, has_gpu)
        facts = machine(python)
    except NothingToCheckWith as problem:
        print(f"gpu_check: {problem}", file=sys.stderr)
        return 2
    say(f"gpu_check: {place}, {json.dumps(facts)}")
    run = Run(arguments, place, variables)
    if not has_gpu:
        say(f"skipped, as there is no NVIDIA GPU here: {', '.join(check.name for check in run.checks)}; their twins:")
    status = 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, run.stop)
    with tempfile.TemporaryDirectory(prefix="gpu_check-") as folder:
        variables["DDPRUN_NCCL_HOST"] = preloadable(variables["DDPRUN_NCCL_HOST"], folder)
        try:
            run.run()
        except Stopped as signal_name:
            run.stopped(signal_name)
            say(f"gpu_check: stopped by {signal_name}")
            status = 128 + signal.Signals[str(signal_name)]
    run.write(arguments.out, facts)
    say(f"{arguments.out}/results.json{', failures.txt' if run.count('failed') else ''}\n{run.verdict()}")
    return status or (0 if run.count("passed") == len(run.checks) else 1)


if __name__ == "__main__":
    sys.exit(main())
