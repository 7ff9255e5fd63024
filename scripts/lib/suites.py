"""Suites and their cases: runs ctest, counts cases in the output of GoogleTest, unittest and others, and prints the summary."""

import json
import os
import re
import subprocess
import time
import xml.etree.ElementTree


class Suite:
    def __init__(self, name):
        self.name = name
        self.passed = self.failed = 0
        self.skipped = {}  # reason: count
        self.problems = []
        self.notes = []  # lines "summary: …" of its tests
        self.seconds = 0.0

    def skip(self, reason, count=1):
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def total_skipped(self):
        return sum(self.skipped.values())


def labels_of(build):
    """{test name: its labels}; the first one is its suite, "threads" and "quiet" are marks."""
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, capture_output=True, text=True)
    labels = {}
    for test in json.loads(listed.stdout)["tests"]:
        for item in test.get("properties", []):
            if item["name"] == "LABELS":
                labels[test["name"]] = sorted(item["value"], key=lambda label: label in ("threads", "quiet"))
    return labels


def run_ctest(suites, build, names, jobs):
    """Runs the tests {name: suite} side by side and counts their cases; says how each one went."""
    logs = os.path.join(build, "test-logs")
    os.makedirs(logs, exist_ok=True)
    report = os.path.join(logs, f"{'-'.join(sorted(suite.name for suite in suites))[:80]}.xml")
    if os.path.exists(report):
        os.remove(report)
    command = ["ctest", "--output-junit", report, "--parallel", str(jobs), "--test-output-size-passed", "4000000",
               "--test-output-size-failed", "4000000", "--no-tests=error",
               "--tests-regex", "^(" + "|".join(map(re.escape, names)) + ")$"]
    said = []
    # So that no job of a test leaves a record of its end in the user's home.
    environment = {**os.environ, "XDG_STATE_HOME": "/dev/null"}
    with subprocess.Popen(command, cwd=build, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as child:
        for line in child.stdout:
            said.append(line)
            ended = re.match(r" *(\d+)/(\d+) Test +#\d+: (\S+) \.*(.*?) +([\d.]+) sec$", line.rstrip())
            if ended and float(ended.group(5)) >= 5:
                number, total, name, verdict, seconds = ended.groups()
                print(f"      {number:>3} of {total}  {name} {verdict.strip(' *')} after {seconds} s", flush=True)
    if not os.path.exists(report):
        for suite in suites:
            suite.failed += 1
            suite.problems.append("ctest gave no report:\n" + "".join(said))
        return
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        suite = names[case.get("name")]
        suite.seconds += float(case.get("time") or 0)
        count_test(suite, case.get("name"), case.get("status"), case.findtext("system-out") or "", case.find("skipped"))


def count_test(suite, name, status, output, skipped):
    """Counts one ctest test by the cases in its output; `status`: ctest's run, fail, notrun, disabled."""
    passed, failed, reasons = count_cases(output)
    suite.notes += re.findall(r"^summary: (.*)$", output, re.MULTILINE)
    if status == "run" and passed + failed + len(reasons) == 0:
        passed = 1
    if status == "notrun" and skipped is not None and "SKIP" in (skipped.get("message") or ""):
        suite.skip(f"{name}: {(output.strip().splitlines() or ['no reason given'])[-1]}")
        return
    if status != "run" and failed == 0:
        failed = 1  # it crashed, timed out, or could not be started
    suite.passed += passed
    suite.failed += failed
    for reason in reasons:
        suite.skip(reason)
    if failed:
        text = output if len(output) < 12000 else output[:4000] + "\n   […]\n" + output[-8000:]
        suite.problems.append(f"{name} ({status})\n{text}")


_UNITTEST_END = re.compile(r"^Ran (\d+) tests? in .*\n\n(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)


def count_cases(output):
    """(passed, failed, [skip reasons]) by what GoogleTest and unittest print; zeros when it is neither."""
    passed = len(re.findall(r"^\[       OK \] ", output, re.MULTILINE))
    failed = len(re.findall(r"^\[  FAILED  \] .*\(\d+ ms\)$", output, re.MULTILINE))
    reasons = [
        (re.search(r"Skipped\n(.*)", body) or re.search(r"()", "")).group(1).strip() or "no reason given"
        for body in re.findall(r"^\[ RUN      \][^\n]*\n((?:(?!\[ RUN)[^\n]*\n)*?)\[  SKIPPED \] .*ms\)$", output,
                               re.MULTILINE)
    ]
    for count, _, details in _UNITTEST_END.findall(output):
        numbers = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", details)}
        bad = numbers.get("failures", 0) + numbers.get("errors", 0) + numbers.get("successes", 0)
        left_out = numbers.get("skipped", 0)
        passed += max(0, int(count) - bad - left_out)
        failed += bad
        quoted = [a or b for a, b in re.findall(r"skipped (?:'([^\n]*)'|\"([^\n]*)\")$", output, re.MULTILINE)]
        reasons += (quoted + ["no reason given"] * left_out)[:left_out]
    return passed, failed, reasons


def failed_cases(output):
    """The names of failed cases, from the output of GoogleTest and unittest."""
    return re.findall(r"^\[  FAILED  \] ([^\s,]+).* \(\d+ ms\)$", output, re.MULTILINE) + re.findall(
        r"^(?:FAIL|ERROR): (\S+ \(\S+\))", output, re.MULTILINE)


def print_progress(suite):
    verdict = "FAILED" if suite.failed else "ok"
    skipped = f", {suite.total_skipped()} skipped" if suite.skipped else ""
    print(f"    {suite.name:<16} {verdict:<6} {suite.passed} passed, {suite.failed} failed{skipped}  "
          f"({suite.seconds:.1f} s)", flush=True)


def print_summary(suites, started):
    for suite in suites:
        for problem in suite.problems:
            print(f"\n---- {suite.name}: {problem.rstrip()}")
    print(f"\n{'suite':<17}{'passed':>8}{'failed':>8}{'skipped':>8}{'time':>10}")
    for suite in suites:
        print(f"{suite.name:<17}{suite.passed:>8}{suite.failed:>8}{suite.total_skipped():>8}{suite.seconds:>8.1f} s")
        for note in suite.notes:
            print(f"{'':<17}  {note}")
        for reason, count in suite.skipped.items():
            print(f"{'':<17}  skipped {count}: {reason}")
    print(f"{'':<17}{'':>24}{time.monotonic() - started:>8.1f} s in all\n")
    for suite in suites:
        for problem in suite.problems:
            test, _, output = problem.partition("\n")
            print(f"failed: {suite.name}: {test}: {', '.join(failed_cases(output)) or 'the test as a whole'}")
    passed = sum(suite.passed for suite in suites)
    failed = sum(suite.failed for suite in suites)
    skipped = sum(suite.total_skipped() for suite in suites)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or passed == 0 else 0
