"""The differential suite: one check of torchrun's contract is one or several tests with its number.

A check runs with ddprun always and with torchrun when this run compares it: those marked ORDINARY always,
those marked WHOLE when DDPRUN_CONTRACT=whole. (=ddprun and =torchrun run one side alone.) What torchrun does is
taken from the real one each time. Where ours is meant to differ, the test says which pain of docs/TORCHRUN.md it
cures, or why.

A file of tests ends with `contract.main()`: its tests run side by side, and what held goes to RESULTS for
summary_test.py.
"""

import concurrent.futures
import dataclasses
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import jobs  # noqa: E402

CHECKS = 99
PAINS = 54
ORDINARY, WHOLE, NEVER = "ordinary", "whole", "never"
MODES = ("ordinary", "whole", "ddprun", "torchrun")
MODE = os.environ.get("DDPRUN_CONTRACT", "ordinary")
if MODE not in MODES:
    sys.exit(f"DDPRUN_CONTRACT={MODE}: is none of {', '.join(MODES)}")
WHOLE_RUN = MODE == "whole"
RESULTS = os.environ.get("DDPRUN_CONTRACT_RESULTS", os.path.join(jobs.ROOT, "build", "dev", "contract-results"))


class Differs:
    """Why ours is not what torchrun does: pains that are cured, and words."""

    def __init__(self, *pains, why=""):
        if not pains and not why:
            raise ValueError("a difference cures a pain or has a reason")
        if any(pain not in range(1, PAINS + 1) for pain in pains):
            raise ValueError(f"no such pain: {pains}")
        self.pains = pains
        self.why = why

    def __str__(self):
        cured = f"cures pain {', '.join(map(str, self.pains))}" if self.pains else ""
        return "; ".join(filter(None, (cured, self.why)))


@dataclasses.dataclass
class Expect:
    """What one launcher process must show. Patterns are regular expressions, searched in whole texts."""

    status: int | tuple = 0
    out: tuple = ()  # patterns that stdout has
    err: tuple = ()  # patterns that stderr has
    none: tuple = ()  # patterns that neither has
    quiet: bool = False  # both are empty
    workers: int | None = None  # how many probes told
    argv: tuple | None = None  # every probe's arguments
    env: dict = dataclasses.field(default_factory=dict)  # every probe's; None: not set; a pattern for the whole value

    def verify(self, case, ended, told, who):
        about = f"{who}: status {ended.status}, stderr: {ended.err[-1500:]}"
        statuses = self.status if isinstance(self.status, tuple) else (self.status,)
        case.assertIn(ended.status, statuses, about)
        for pattern in self.out:
            case.assertRegex(ended.out, pattern, about)
        for pattern in self.err:
            case.assertRegex(ended.err, pattern, about)
        for pattern in self.none:
            case.assertNotRegex(ended.out + ended.err, pattern, about)
        if self.quiet:
            case.assertEqual(("", ""), (ended.out, ended.err), about)
        if self.workers is not None:
            case.assertEqual(self.workers, len(told), about)
        for line in told:
            if self.argv is not None:
                case.assertEqual(list(self.argv), line["arguments"], about)
            for name, pattern in self.env.items():
                value = line["environment"].get(name)
                if pattern is None:
                    case.assertIsNone(value, f"{who}: {name}")
                else:
                    case.assertRegex("" if value is None else value, rf"\A(?:{pattern})\Z", f"{who}: {name}")


@dataclasses.dataclass
class Row:
    """A check as a line of a table: one command, and what it must show.

    `both`: the same for the two; or `ours` and `theirs` with the reason in `differs`. In `arguments`, S is a
    script that does nothing and W is probe.py.
    """

    check: int
    name: str
    arguments: tuple
    both: Expect | None = None
    ours: Expect | None = None
    theirs: Expect | None = None
    differs: Differs | None = None
    env: dict = dataclasses.field(default_factory=dict)
    compare: str = ORDINARY

    def __post_init__(self):
        if (self.both is None) != (self.differs is not None):
            raise ValueError(f"row {self.name}: either `both`, or two expectations and `differs`")
        self.ours = self.ours or self.both
        self.theirs = self.theirs or self.both

    def run(self, job):
        job.private = True
        words = [job.script("") if word == "S" else word for word in self.arguments]
        return job.run(words, env=self.env)


def check(*numbers, compare=NEVER, differs=None):
    """Marks a test method with the checks that it shows.

    `compare`: when torchrun runs too (ContractCase.launchers). `differs`: why ours is another.
    """
    def mark(method):
        method.checks = numbers
        method.compare = compare
        method.differs = differs
        return method
    return mark


def rows(table):
    """A class decorator: each row becomes a test method, test_<check>_<name>."""
    def add(cls):
        for row in table:
            def test(self, row=row):
                for launcher in self.launchers():
                    job = self.job(launcher)
                    ended = row.run(job)
                    expected = row.ours if job.ours else row.theirs
                    expected.verify(self, ended, job.told(), launcher.name)
                    if job.ours and ended.status:
                        self.check_refusal(ended)
            name = f"test_{row.check:02d}_{row.name}"
            if hasattr(cls, name):
                raise ValueError(f"two rows of name {name}")
            test.__doc__ = f"ddprun differs: {row.differs}" if row.differs else None
            setattr(cls, name, check(row.check, compare=row.compare, differs=row.differs)(test))
        return cls
    return add


class ContractCase(unittest.TestCase):
    """A test that runs jobs of either launcher; a failed one prints their stories."""

    def setUp(self):
        self._jobs = []
        self.compared = False
        self.addCleanup(self._end)

    def job(self, launcher):
        job = jobs.Job(launcher)
        self._jobs.append(job)
        return job

    def launchers(self):
        """ddprun, and torchrun where this run compares it."""
        if MODE != "torchrun":
            yield jobs.OURS
        compare = getattr(getattr(self, self._testMethodName), "compare", NEVER)
        wanted = {"ordinary": compare == ORDINARY, "ddprun": False}.get(MODE, compare != NEVER)
        if wanted and jobs.torchrun_is_there():
            yield jobs.THEIRS
            self.compared = True

    def check_refusal(self, ended):
        """A usage mistake costs one clear message and no stack (pain 51)."""
        for noise in ("Traceback", "terminate called", "absl::", "DDPRUN_CHECK", "Aborted"):
            self.assertNotIn(noise, ended.err)
        self.assertTrue(ended.err.strip(), "a failure without a word")

    def _end(self):
        left = {}
        for job in self._jobs:
            kept = job.stop()
            left.update(kept if job.ours else {})
        if left or jobs.has_failed(self):
            print(f"\n{self.id()}:\n" + "\n".join(job.story() for job in self._jobs), flush=True)
        for job in self._jobs:
            job.close()
        self.assertEqual({}, left, "processes outlived ddprun")


# ---------------------------------------------------------------- running

def _flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flatten(test)
        else:
            yield test


def _run_one(test):
    result = unittest.TestResult()
    started = time.monotonic()
    test.run(result)
    return test, result, time.monotonic() - started


def _record(group, outcomes):
    """Writes {check: {"held", "compared", "tests"}} of this file's tests."""
    found = {}
    for test, result, _ in outcomes:
        method = getattr(test, test._testMethodName)  # pylint: disable=protected-access
        for number in getattr(method, "checks", ()):
            entry = found.setdefault(number, {"held": True, "compared": False, "tests": []})
            entry["held"] = entry["held"] and result.wasSuccessful() and not result.skipped
            entry["compared"] = entry["compared"] or (getattr(test, "compared", False) and result.wasSuccessful())
            entry["tests"].append(test._testMethodName)  # pylint: disable=protected-access
    os.makedirs(RESULTS, exist_ok=True)
    with open(os.path.join(RESULTS, group + ".json"), "w", encoding="utf-8") as sink:
        json.dump({"whole": WHOLE_RUN, "checks": found}, sink)


def main():
    """Runs the tests of the calling file (those whose names hold one of the arguments), side by side."""
    module = sys.modules["__main__"]
    words = sys.argv[1:]
    tests = [test for test in _flatten(unittest.defaultTestLoader.loadTestsFromModule(module))
             if not words or any(word in test.id() for word in words)]
    started = time.monotonic()
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        for test, result, seconds in pool.map(_run_one, tests):
            outcomes.append((test, result, seconds))
            verdict = "ok" if result.wasSuccessful() else "FAILED"
            if result.skipped:
                verdict = f"skipped {result.skipped[0][1]!r}"
            print(f"{test.id()} ({seconds:.1f} s) ... {verdict}", flush=True)
    bad = skipped = 0
    for test, result, _ in outcomes:
        bad += not result.wasSuccessful()
        skipped += bool(result.skipped)
        for _, text in result.failures + result.errors:
            print(f"\n{'=' * 70}\n{test.id()}\n{text}")
    if not words and MODE in ("ordinary", "whole"):
        _record(os.path.basename(module.__file__).removesuffix("_test.py"), outcomes)
    details = ", ".join(f"{name}={count}" for name, count in (("failures", bad), ("skipped", skipped)) if count)
    print(f"\nRan {len(tests)} tests in {time.monotonic() - started:.3f}s\n")
    print(("FAILED" if bad else "OK") + (f" ({details})" if details else ""), flush=True)
    sys.exit(1 if bad or not tests else 0)
