"""Configures and builds the builds that the suites run in, and lists their tests."""

import json
import os
import re
import subprocess
import time

from suites import Suite, labels_of, run_ctest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# Options of a build/dev that is made here, not for debugging or editing: files are joined and have line tables only, which takes
# half the time. A folder that was configured by hand keeps its options.
FRESH = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_CXX_FLAGS_DEBUG=-g1"]


def folder_of(preset):
    return os.path.join(ROOT, "build", preset)


def configure(preset, options=()):
    """Returns '' or an error text. Only a folder that is made here joins files."""
    is_new = not os.path.exists(os.path.join(folder_of(preset), "CMakeCache.txt"))
    fresh = FRESH if is_new and preset == "dev" else []
    return logged(preset, ["cmake", "--preset", preset, *fresh, *options], "w")


def logged(preset, command, mode="a", idle=False):
    """Runs a command of a build; returns '' or an error text with the end of the build's log. `idle`: with a lower priority, and
    without output; else prints its progress at each quarter."""
    log = os.path.join(ROOT, "build", f"{preset}-build.log")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    # About a third of another process' share. With a hundredth it would never end beside other programs' busy loops.
    command = [*(["nice", "-n", "5"] if idle else []), *command]
    told = 0
    with open(log, mode, encoding="utf-8") as sink, subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as child:
        for line in child.stdout:
            sink.write(line)
            sink.flush()
            step = re.match(r"\[(\d+)/(\d+)\]", line)
            quarter = 4 * int(step.group(1)) // int(step.group(2)) if step else 0
            if quarter > told and not idle:
                told = quarter
                print(f"      build {preset}: {step.group(1)} of {step.group(2)} steps", flush=True)
    if child.returncode == 0:
        return ""
    with open(log, encoding="utf-8", errors="replace") as text:
        return f"{' '.join(command)} failed; the end of {log}:\n" + "".join(text.readlines()[-40:])


def refresh(preset):
    """Configures a preset, or only what a changed CMakeLists.txt needs if it was configured before; '' or an error text."""
    made = os.path.join(folder_of(preset), "build.ninja")
    if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(os.path.join(ROOT, "CMakePresets.json")):
        return configure(preset)
    return logged(preset, ["cmake", "--build", f"build/{preset}", "--target", "build.ninja"], "w")


def built_suite(preset, jobs, targets, options=(), idle=False, configured=False):
    """Configures a preset if necessary, and builds these targets; returns the suite "build"."""
    suite = Suite(f"build {preset}")
    started = time.monotonic()
    problem = "" if configured else configure(preset, options)
    if not problem and targets:
        problem = logged(preset, ["cmake", "--build", f"build/{preset}", "--parallel", str(jobs), "--target", *targets],
                         idle=idle)
    suite.seconds = time.monotonic() - started
    if problem:
        suite.failed = 1
        suite.problems.append(problem)
    return suite


def targets_of(suites):
    return [f"tests_{name}" for name in suites if name not in ("lint", "static")]


def tests_in(parts):
    """The tests of the build dev. If `parts` has "unit", only those tests of tests/unit that are in or below its folders; if it
    has simulations, only these."""
    folders = parts.get("unit")
    simulations = [part.removeprefix("sim/") for part in parts.get("sim", ())]
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=folder_of("dev"), check=True, capture_output=True, text=True)
    told = json.loads(listed.stdout)
    files, nodes = told["backtraceGraph"]["files"], told["backtraceGraph"]["nodes"]

    def is_wanted(node):
        while "parent" in nodes[node]:
            node = nodes[node]["parent"]
        folder = os.path.relpath(os.path.dirname(files[nodes[node]["file"]]), os.path.join(ROOT, "tests")) + "/"
        return folders is None or not folder.startswith("unit/") or any(folder.startswith(wanted + "/") for wanted in folders)

    def is_left_out(test):
        labels = next((item["value"] for item in test.get("properties", []) if item["name"] == "LABELS"), [])
        return simulations and "sim" in labels and test["name"] not in simulations

    return {test["name"] for test in told["tests"] if is_wanted(test["backtrace"]) and not is_left_out(test)}


def links_grpc(program):
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return "libgrpc" in needed


def tsan_tests(whole):
    """The tests for ThreadSanitizer: those with threads, and with `whole` all without gRPC: Debian's gRPC isn't instrumented, so
    its synchronization looks like races. Requires: configured; for `whole`: asan-ubsan is built."""
    labels = labels_of(folder_of("tsan"))
    if not whole:
        return [name for name, its in labels.items() if "threads" in its]
    built = os.path.join(folder_of("asan-ubsan"), "tests")
    return [name for name, its in labels.items() if its[0] in ("unit", "datadriven", "sim")
            and os.path.exists(f"{built}/{name}") and not links_grpc(f"{built}/{name}")]


def run_suites(preset, names, jobs, chosen=None):
    """Runs the suites of these names side by side; `chosen`: only these tests."""
    suites = {name: Suite(name) for name in names}
    tests = {test: suites[labels[0]] for test, labels in labels_of(folder_of(preset)).items()
             if labels[0] in suites and (chosen is None or test in chosen)}
    for suite in suites.values():
        if suite not in tests.values():
            suite.skip(f"no test of label '{suite.name}' in this build")
    if tests:
        run_ctest(list(suites.values()), folder_of(preset), tests, jobs)
    return list(suites.values())


def run_joined(name, preset, labels, jobs, chosen=None):
    """Runs the tests of several labels as one suite."""
    suite = Suite(name)
    tests = {test: suite for test, its in labels_of(folder_of(preset)).items()
             if its[0] in labels and (chosen is None or test in chosen)}
    run_ctest([suite], folder_of(preset), tests, jobs)
    return suite
