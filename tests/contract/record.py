"""What the real torchruns showed in each check, as files: tests/contract/recorded/<version of torch>/<file of tests>.json.

An ordinary run holds ddprun against these; DDPRUN_CONTRACT=whole runs the torchruns again and holds the record against
them, and DDPRUN_CONTRACT=record writes them anew; DDPRUN_CONTRACT_TORCH limits either to one version. They are written by
torchrun alone: each entry has a sum of what is in it, so that one changed by hand is found out.

What differs from machine to machine and from run to run stands there as a sample of its kind: 0000 for process ids,
ports and times, /job for the job's folder, a UUID of the letter a. What tracebacks name of files is left out.
"""

import functools
import hashlib
import json
import os
import re
import socket
import sys

import jobs

FOLDER = os.environ.get("DDPRUN_CONTRACT_RECORD", os.path.join(jobs.HERE, "recorded"))
# A number that a test or torchrun chose; other long numbers are pids, ports and times.
_CHOSEN_NUMBERS = {"29400", "29500", "23456", "99999"}
# Variables of shells: no launcher sets them.
_SHELLS_VARIABLES = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}
# What may differ between launchers in every check; tests 39, 40, 48 and those of logs look at them. The last is set by
# torch's compiler, which torchrun imports now and then.
_FREE_VARIABLES = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHINDUCTOR_CACHE_DIR"}
_OWN_NAMES = {socket.gethostname(), socket.getfqdn()}
_NOTHING = object()
_UUID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"  # the sample of each


class RecordError(Exception):
    """The record can't be used: the text says why, and what to run."""


def how_to_record(torchrun, group, test=""):
    """The command that writes a file, or one test's part of it, anew."""
    return f"DDPRUN_CONTRACT=record DDPRUN_CONTRACT_TORCH={torchrun.torch} python3 tests/contract/{group}_test.py {test}".rstrip()


def installed(torchrun):
    """{"torch", "python"}: the versions behind a torchrun. Errors: RecordError."""
    home = torchrun.home
    try:
        with open(os.path.join(home, "pyvenv.cfg"), encoding="utf-8") as source:
            python = re.search(r"^version *= *(\S+)", source.read(), re.MULTILINE).group(1)
        packages = os.listdir(os.path.join(home, "lib", "python" + ".".join(python.split(".")[:2]), "site-packages"))
        torch = next(match.group(1) for name in packages if (match := re.match(r"torch-(.+)\.dist-info$", name)))
    except (OSError, AttributeError, StopIteration) as error:
        raise RecordError(f"the real torchrun isn't installed in {home} (scripts/setup --contract installs it)") from error
    return {"torch": torch, "python": python}


# ---------------------------------------------------------------- what a job showed

def plain(text, job):
    """The text with a sample in place of all that is this machine's or this run's."""
    for path, sample in ((os.path.realpath(job.folder), "/job"), (job.folder, "/job"), (jobs.HERE, "/contract"),
                         *((torchrun.home, "/torch") for torchrun in jobs.TORCHRUNS), (jobs.ROOT, "/ddprun"),
                         (sys.executable, "/python3"), (os.path.realpath(sys.executable), "/python3")):
        text = text.replace(path, sample)
    # Left out are frames of tracebacks, also in lines of a log; what libraries in C++ log, and which heartbeats fail, because
    # that depends on the machine and the moment; rulers, because they are as long as a path.
    text = re.sub(r'^((?:[IWE]\d{4} .*?\] )? *)File ".*\n(?:\1 +(?!File ").*\n|\1File ".*\n)*', r"\1File …\n", text,
                  flags=re.MULTILINE)
    text = re.sub(r"^(\[[IWE]\d{4} .*?\.cpp:\d+\].*|Exception raised from .*\.[ch]pp:.*|frame #\d+: .*|"
                  r"<omitting python frames>|[IWE]\d{4} .*/dynamic_rendezvous\.py:\d+\].*)\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"([=-])\1{9,}", lambda match: match[1] * 10, text)
    for name in _OWN_NAMES - {"localhost"}:
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "host", text)
    for pattern, sample in (
            (r"(?m)^( *host +: ).*", r"\g<1>host"), (r'("hostname": )"[^"]*"', r'\g<1>"host"'),
            (r'("(?:duration_ms|total_run_time|timestamp)": )"?[\d.]+(?:e-\d+)?"?', r"\g<1>0"),
            (r"(?<![0-9a-f])[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", _UUID),
            (r"_[a-z0-9_]{8}(?=/(attempt_|$))", "_00000000"),  # before the next: a random name may have 0x in it
            (r"torchelastic_[a-z0-9_]{8}\b", "torchelastic_00000000"),
            (r"0x[0-9a-f]+", "0x0"), (r"\d{4}-\d\d-\d\d([_ T])\d\d:\d\d:\d\d(\.\d+)?", r"0000-00-00\g<1>00:00:00"),
            (r"\d\d:\d\d:\d\d\.\d+ +\d+", "00:00:00.000000 0000"), (r"\d\d:\d\d:\d\d\.\d+", "00:00:00.000000"),
            (r"(?i)\b(pids?\W{1,3})\d+", r"\g<1>0000"),
            (r"(?<![\d:.])\d+\.\d{4,}(e-\d+)?(?![\d.])", "0.0000"),
            (r"\btimer_\d+|torchelastic_timer_\S+", "timer_0000")):
        text = re.sub(pattern, sample, text)
    return re.sub(r"(?<!\d)\d{4,}(?!\d)", _sample_number, text)


def _sample_number(match):
    if match[0] in _CHOSEN_NUMBERS:
        return match[0]
    return "0" * 16 if len(match[0]) >= 16 else "0000"  # the long ones are random names


def _plain_value(value, job):
    if isinstance(value, str):
        return plain(value, job)
    if isinstance(value, float) or isinstance(value, int) and not isinstance(value, bool) and value >= 1000:
        return 0
    return value


def _lines(text, job):
    return plain(text, job).splitlines()


def _worker(line, job):
    given, told = job.given, line["environment"]
    environment = {name: plain(told[name], job) if name in told else None
                   for name in sorted({*given, *told} - _SHELLS_VARIABLES) if told.get(name) != given.get(name)}
    if environment.get("MASTER_ADDR") in _OWN_NAMES and "--local-addr" not in sum(job.commands.values(), []):
        environment["MASTER_ADDR"] = "host"
    return {"rank": line["rank"], "attempt": line["attempt"], "world": line["world"], "group_rank": line["group_rank"],
            "arguments": [plain(word, job) for word in line["arguments"]], "environment": environment}


def observe(job):
    """What a job has shown so far: its launchers, its workers, what they reported, and its log files."""
    nodes = {}
    for agent in job.agents:
        nodes[agent.name] = {
            "arguments": [plain(word, job) for word in job.commands.get(agent.name, ())],
            "status": jobs.shell_status(agent.returncode) if agent.ended() else "runs on",
            "stdout": _lines(job.text(agent.name + ".stdout"), job), "stderr": _lines(job.text(agent.name + ".stderr"), job)}
    workers = [_worker(line, job) for line in job.told()]
    for node in nodes.values() if len(workers) > 1 else ():
        node["stdout"].sort()  # which worker's line comes first is chance
    told = [{name: _plain_value(value, job) for name, value in line.items()
             if name not in ("t", "pid", "who", "attempt", "world", "group_rank")}
            for line in sorted(job.journal.lines, key=lambda line: (line["event"], line["rank"])) if line["event"] != "worker"]
    files = {plain(path, job): [] if path.endswith(".json") else _lines(text, job) for path, text in job.files("logs").items()}
    return {"nodes": nodes, "workers": workers, "told": told, "files": files}


def one_for_each_processor(shown):
    """As observe(), where there is a worker for each of this machine's processors: one stands for all."""
    count = os.cpu_count()
    if len(shown["workers"]) == count:
        text = json.dumps(shown["workers"][0]).replace(f'SIZE": "{count}"', 'SIZE": "<processors>"')
        shown["workers"] = [{**json.loads(text), "world": "<processors>"}]
    return shown


# ---------------------------------------------------------------- the files

def sum_of(jobs_shown):
    """What seals an entry."""
    return hashlib.sha256(json.dumps(jobs_shown, sort_keys=True).encode()).hexdigest()[:16]


def _path(torchrun, group):
    return os.path.join(FOLDER, torchrun.torch, group + ".json")


@functools.cache
def load(torchrun, group):
    """{test: what its jobs showed}. Errors: RecordError, for a file that is missing, stale or changed by hand."""
    path, anew = _path(torchrun, group), how_to_record(torchrun, group)
    try:
        with open(path, encoding="utf-8") as source:
            record = json.load(source)
    except FileNotFoundError as error:
        raise RecordError(f"{path} is missing. Write it: {anew}") from error
    if record["torch"] != torchrun.torch:
        raise RecordError(f"{path} is of torch {record['torch']}, and {jobs.PINS} pins {torchrun.torch}. Write it anew: {anew}")
    for test, entry in record["tests"].items():
        if entry["sum"] != sum_of(entry["jobs"]):
            raise RecordError(f"{path}: {test} was not written by torchrun. "
                              f"Write it anew: {how_to_record(torchrun, group, test)}")
    return {test: entry["jobs"] for test, entry in record["tests"].items()}


def store(torchrun, group, shown, whole):
    """Writes what these tests' jobs showed; the other tests' entries stay unless `whole`. Errors: RecordError."""
    versions = installed(torchrun)
    if versions["torch"] != torchrun.torch:
        raise RecordError(f"torch {versions['torch']} is installed in {torchrun.home}, and {jobs.PINS} pins {torchrun.torch}: "
                          "run scripts/setup --contract")
    kept = {} if whole else load(torchrun, group)
    tests = {test: {"sum": sum_of(jobs_shown), "jobs": jobs_shown} for test, jobs_shown in sorted({**kept, **shown}.items())}
    path = _path(torchrun, group)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as sink:
        json.dump({**versions, "tests": tests}, sink, indent=1, ensure_ascii=False)
        sink.write("\n")


# ---------------------------------------------------------------- comparing

def difference(recorded, seen, where=""):
    """'' or the first place at which these differ, with both values."""
    if isinstance(recorded, dict) and isinstance(seen, dict):
        pairs = [(name, recorded.get(name, _NOTHING), seen.get(name, _NOTHING)) for name in {**recorded, **seen}]
    elif isinstance(recorded, list) and isinstance(seen, list):
        longest = range(max(len(recorded), len(seen)))
        pairs = [(i, *(side[i] if i < len(side) else _NOTHING for side in (recorded, seen))) for i in longest]
    else:
        shown = ["nothing" if value is _NOTHING else repr(value) for value in (recorded, seen)]
        return "" if recorded == seen else f"{where or 'the whole'}: recorded {shown[0]}, seen {shown[1]}"
    return next((found for name, left, right in pairs if (found := difference(left, right, f"{where}/{name}"))), "")


def steady(jobs_shown, unsteady):
    """A copy without the parts that torchrun doesn't show the same way each time, "stderr" of nodes among them."""
    copies = []
    for shown in jobs_shown:
        copy = {name: value for name, value in shown.items() if name not in unsteady}
        if "nodes" in copy:
            copy["nodes"] = {name: {key: value for key, value in node.items() if key not in unsteady}
                             for name, node in copy["nodes"].items()}
        copies.append(copy)
    return copies


def common(jobs_shown):
    """What must be the same with all launchers where a test names no difference.

    A run without a name is called none by the pinned torchrun, and by a UUID by the newest: checks 25, 33 and 39 look at it.
    """
    def named(text):
        return re.sub(r"\Anone(?=_|\Z)", _UUID, text)

    copies = steady(jobs_shown, ("stderr",))
    for shown in copies:
        shown["files"] = {named(path): lines for path, lines in shown.get("files", {}).items()}
        shown["workers"] = [{**worker, "environment": {
            name: named(value) if name == "TORCHELASTIC_RUN_ID" else value for name, value in worker["environment"].items()
            if name not in _FREE_VARIABLES and not name.startswith("DDPRUN_")}} for worker in shown.get("workers", ())]
    return copies
