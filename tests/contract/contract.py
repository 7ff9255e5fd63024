"""The differential suite: one check of torchrun's contract is one or several tests with its number.

A check runs with ddprun always. What the real torchruns (jobs.TORCHRUNS) show in it is recorded (record.py): an ordinary
run holds ddprun against the records. DDPRUN_CONTRACT=whole runs the torchruns again and holds them against the records
too, and =record writes the records. (=ddprun and =torchrun run one side alone, to look at it.) DDPRUN_CONTRACT_TORCH
limits all this to one version of torch. Where ours is meant to differ, the test says which pain of docs/TORCHRUN.md it
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
import record  # noqa: E402

CHECKS = 99
PAINS = 54
MODES = ("ordinary", "whole", "record", "ddprun", "torchrun")
MODE = os.environ.get("DDPRUN_CONTRACT", "ordinary")
if MODE not in MODES:
    sys.exit(f"DDPRUN_CONTRACT={MODE}: is none of {', '.join(MODES)}")
WHOLE_RUN = MODE == "whole"
_VERSION = os.environ.get("DDPRUN_CONTRACT_TORCH", "")
TORCHRUNS = tuple(torchrun for torchrun in jobs.TORCHRUNS if _VERSION in ("", torchrun.torch))
if not TORCHRUNS:
    sys.exit(f"DDPRUN_CONTRACT_TORCH={_VERSION}: is none of {', '.join(torchrun.torch for torchrun in jobs.TORCHRUNS)}")
JUDGED = MODE in ("ordinary", "whole")
RESULTS = os.environ.get("DDPRUN_CONTRACT_RESULTS", os.path.join(jobs.ROOT, "build", "dev", "contract-results"))


# Values in which ddprun differs on purpose from torchrun 2.15, beside docs/TORCHRUN.md and what tests say with Differs:
#   MASTER_ADDR of a plain run      127.0.0.1, not the host's full name, which needs a resolver that knows it
#   run id of a plain run           a UUID; but a --rdzv_id that is given is kept
#   a missing script                an error before anything is started; the same status 1
#   nobody listens                  read_timeout where it is given (60 s in torchrun), else the join timeout
#   --print-completion              prints the script that is installed, for bash and zsh; needs no package
#   --shutdown-timeout              takes a duration; another name of --grace
#   cas_backoff_max_seconds         of --rdzv_conf: accepted with a warning, because there is no compare-and-set
#   TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT  isn't read: --hang_timeout covers such a worker
#   --node-rank under c10d          no warning that it is ignored, because it is used
#   torch's Python event handlers   aren't called: the agent is another process; --event_log_handler writes torchrun's names
class Differs:
    """Why ours is not what torchrun does: pains that are cured, and words. `only`: the torchrun that alone differs."""

    def __init__(self, *pains, why="", only=None):
        if not pains and not why:
            raise ValueError("a difference cures a pain or has a reason")
        if any(pain not in range(1, PAINS + 1) for pain in pains):
            raise ValueError(f"no such pain: {pains}")
        self.pains = pains
        self.why = why
        self.only = only

    def holds_for(self, torchrun):
        return self.only in (None, torchrun)

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
    workers: int | None = None  # how many probes reported
    argv: tuple | None = None  # every probe's arguments
    env: dict = dataclasses.field(default_factory=dict)  # every probe's; None: not set; a pattern for the whole value

    def verify(self, case, ended, told, launcher):
        about = f"{launcher}: status {ended.status}, stderr: {ended.err[-1500:]}"
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
                    case.assertIsNone(value, f"{about}: {name}")
                else:
                    case.assertRegex("" if value is None else value, rf"\A(?:{pattern})\Z", f"{about}: {name}")


@dataclasses.dataclass
class Row:
    """A check as a line of a table: one command, and what it must show.

    `both`: the same for all; or `ours` and `theirs` with the reason in `differs`. `pinned`: what the pinned torchrun shows
    where the newest shows something else. In `arguments`, S is a script that does nothing and W is probe.py.
    """

    check: int
    name: str
    arguments: tuple
    both: Expect | None = None
    ours: Expect | None = None
    theirs: Expect | None = None
    pinned: Expect | None = None
    differs: Differs | None = None
    env: dict = dataclasses.field(default_factory=dict)
    recorded: bool = True

    def __post_init__(self):
        if (self.both is None) != (self.differs is not None and self.differs.only is None):
            raise ValueError(f"row {self.name}: either `both`, or two expectations and `differs`")
        self.ours = self.ours or self.both
        self.theirs = self.theirs or self.both
        self.pinned = self.pinned or self.theirs

    def expected(self, launcher):
        return self.ours if launcher.ours else self.pinned if launcher is jobs.PINNED else self.theirs

    def run(self, job):
        job.private = True
        words = [job.script("") if word == "S" else word for word in self.arguments]
        return job.run(words, env=self.env)


def check(*numbers, recorded=False, differs=None, unsteady=(), per_processor=False, waits=False):
    """Marks a test method with the checks that it shows.

    `recorded`: torchrun can show it too, and what it showed is recorded. `differs`: why ours is another. `unsteady`: names
    in record.observe() that torchrun doesn't show the same way each time. `per_processor`: it starts a worker for each
    processor. `waits`: for many seconds, and uses no processor meanwhile.
    """
    def mark(method):
        method.checks = numbers
        method.recorded = recorded
        method.differs = differs
        method.unsteady = unsteady
        method.per_processor = per_processor
        method.waits = waits
        return method
    return mark


def replayed(shown, given):
    """(Ended, the workers' reports) of a recorded job with one launcher; its workers were given these variables too."""
    node, = shown["nodes"].values()
    texts = ["".join(line + "\n" for line in node[stream]) for stream in ("stdout", "stderr")]
    told = [{**worker, "environment": {**given, **worker["environment"]}} for worker in shown["workers"]]
    return jobs.Ended(node["status"], *texts, 0), told


def rows(table):
    """A class decorator: each row becomes a test method, test_<check>_<name>."""
    def add(cls):
        for row in table:
            def test(self, row=row):
                for launcher in self.launchers():
                    job = self.job(launcher)
                    ended = row.run(job)
                    row.expected(launcher).verify(self, ended, job.told(), launcher.name)
                    if job.ours and ended.status:
                        self.check_refusal(ended)
                for torchrun in TORCHRUNS if JUDGED and row.recorded else ():
                    who = f"torchrun, as recorded by {record.how_to_record(torchrun, self.group, self._testMethodName)}"
                    row.expected(torchrun).verify(self, *replayed(self.record(torchrun)[0], row.env), who)
            name = f"test_{row.check:02d}_{row.name}"
            if hasattr(cls, name):
                raise ValueError(f"two rows of name {name}")
            test.__doc__ = f"ddprun differs: {row.differs}" if row.differs else None
            setattr(cls, name, check(row.check, recorded=row.recorded, differs=row.differs)(test))
        return cls
    return add


class ContractCase(unittest.TestCase):
    """A test that runs jobs of either launcher; a failed one prints their stories."""

    def setUp(self):
        self._jobs = []
        self.compared = False
        self.shown = {}  # what each torchrun's jobs showed, in this run
        self.addCleanup(self._end)

    def job(self, launcher):
        job = jobs.Job(launcher)
        self._jobs.append(job)
        return job

    @property
    def method(self):
        return getattr(self, self._testMethodName)

    @property
    def group(self):
        """The name of this test's file of the record."""
        return os.path.basename(sys.modules[type(self).__module__].__file__).removesuffix("_test.py")

    def launchers(self):
        """ddprun, and the torchruns where this run wants them."""
        if MODE not in ("torchrun", "record"):
            yield jobs.OURS
        if MODE in ("whole", "torchrun", "record") and getattr(self.method, "recorded", False):
            for torchrun in TORCHRUNS:
                if not torchrun.is_there():
                    self.fail(f"{torchrun.command[0]} is not installed (scripts/setup --contract installs it)")
                yield torchrun

    def record(self, torchrun):
        """What this torchrun's jobs showed in this test, as recorded."""
        try:
            found = record.load(torchrun, self.group).get(self._testMethodName)
        except record.RecordError as error:
            self.fail(str(error))
        if found is None:
            self.fail(f"no record of this test. Write it: {self._how_to_record(torchrun)}")
        return found

    def _how_to_record(self, torchrun):
        return record.how_to_record(torchrun, self.group, self._testMethodName)

    def check_refusal(self, ended):
        """A usage mistake costs one clear message and no stack (pain 51)."""
        for noise in ("Traceback", "terminate called", "absl::", "DDPRUN_CHECK", "Aborted"):
            self.assertNotIn(noise, ended.err)
        self.assertTrue(ended.err.strip(), "a failure without a word")

    def _end(self):
        shown = {}
        left = {}
        for job in self._jobs:
            shown.setdefault(job.launcher, []).append(self._observe(job))
            kept = job.stop()
            left.update(kept if job.ours else {})
        failed = jobs.has_failed(self)
        if left or failed:
            print(f"\n{self.id()}:\n" + "\n".join(job.story() for job in self._jobs), flush=True)
        for job in self._jobs:
            job.close()
        self.assertEqual({}, left, "processes outlived ddprun")
        ours = shown.pop(jobs.OURS, [])
        self.shown = shown
        if not failed and JUDGED and getattr(self.method, "recorded", False):
            for torchrun in TORCHRUNS:
                self._hold_against_the_record(torchrun, ours)
            self.compared = True

    def _observe(self, job):
        shown = record.observe(job)
        if getattr(self.method, "per_processor", False):
            shown = record.one_for_each_processor(shown)
        return record.steady([shown], getattr(self.method, "unsteady", ()))[0]

    def _hold_against_the_record(self, torchrun, ours):
        recorded = self.record(torchrun)
        anew = self._how_to_record(torchrun)
        numbers = ", ".join(map(str, self.method.checks))
        if self.method.differs is None or not self.method.differs.holds_for(torchrun):
            found = record.difference(record.common(recorded), record.common(ours))
            self.assertEqual("", found, f"check {numbers}: ddprun isn't as {torchrun.name} was. (The record anew: {anew})")
        if WHOLE_RUN:
            found = record.difference(recorded, self.shown.get(torchrun, []))
            self.assertEqual("", found, f"check {numbers}: {torchrun.name} isn't as it was. The record anew: {anew}")


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


def _write_results(group, outcomes):
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


def _write_record(group, outcomes, whole):
    """'' or why a record couldn't be written."""
    for torchrun in TORCHRUNS:
        shown = {test._testMethodName: test.shown[torchrun] for test, result, _ in outcomes  # pylint: disable=protected-access
                 if result.wasSuccessful() and test.shown.get(torchrun)}
        try:
            record.store(torchrun, group, shown, whole)
        except record.RecordError as error:
            return str(error)
        print(f"recorded: {len(shown)} tests of {group} with {torchrun.name}", flush=True)
    return ""


def orphans(torchrun, group, tests):
    """'' or which entries of a record no test has any more."""
    wanted = {test._testMethodName for test in tests  # pylint: disable=protected-access
              if getattr(test, "method", None) and getattr(test.method, "recorded", False)}
    try:
        unknown = sorted(set(record.load(torchrun, group)) - wanted)
    except record.RecordError as error:
        return str(error)
    return f"recorded, but no test: {', '.join(unknown)}. {record.how_to_record(torchrun, group)}" if unknown else ""


def _in_turn(tests):
    """(test, result, seconds) of each, as they end: those that only wait begin first, in threads of their own."""
    patient = [test for test in tests if getattr(getattr(test, "method", None), "waits", False)]
    busy = [test for test in tests if test not in patient]
    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1 + len(patient)) as pool:
        for future in concurrent.futures.as_completed([pool.submit(_run_one, test) for test in patient + busy]):
            yield future.result()


def main():
    """Runs the tests of the calling file (those whose names hold one of the arguments), side by side."""
    module = sys.modules["__main__"]
    group = os.path.basename(module.__file__).removesuffix("_test.py")
    words = sys.argv[1:]
    every = list(_flatten(unittest.defaultTestLoader.loadTestsFromModule(module)))
    tests = [test for test in every if not words or any(word in test.id() for word in words)]
    started = time.monotonic()
    outcomes = []
    for test, result, seconds in _in_turn(tests):
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
    problem = ""
    if MODE == "record":
        problem = _write_record(group, outcomes, whole=not words)
    elif JUDGED and not words:
        problem = "\n".join(filter(None, (orphans(torchrun, group, every) for torchrun in TORCHRUNS)))
        _write_results(group, outcomes)
    if problem:
        print(f"\n{'=' * 70}\n{problem}")
    bad += bool(problem)
    details = ", ".join(f"{name}={count}" for name, count in (("failures", bad), ("skipped", skipped)) if count)
    print(f"\nRan {len(tests)} tests in {time.monotonic() - started:.3f}s\n")
    print(("FAILED" if bad else "OK") + (f" ({details})" if details else ""), flush=True)
    sys.exit(1 if bad or not tests else 0)
