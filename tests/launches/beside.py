"""What two launchers showed of the same launch, beside each other."""

import collections
import re

from judge import Complaint, Judge, inherited

# Variables of a worker that differ from launch to launch, or that only one launcher gives, on purpose (decision 8).
_OWN = re.compile(r"DDPRUN_\w+|PET_\w+|_|SHLVL|OLDPWD|PLAN|MASTER_PORT|TORCHELASTIC_ERROR_FILE|TORCHINDUCTOR_CACHE_DIR|KMP_\w+|"
                  r"CUDA_MODULE_LOADING|PYTHON_EXEC")
_RANDOM = re.compile(r"(?<=torchelastic)_[a-z0-9_]{8}|_[a-z0-9_]{8}(?=/attempt)")
# A UUID or Slurm's number of a job or a step.
_NAMES = re.compile(r"/(none|[0-9a-f-]{36}|[0-9]+(\.[0-9]+)?)?/attempt")
_UUID = re.compile(r"/[0-9a-f-]{36}(_[a-z0-9_]{8})?/attempt")
_ANY_NAME = re.compile(r"/[^/]*/attempt")
# What decides whether torchrun has completed a launch: without these complaints.
_COMPLETED = ("hangs", "status", "workers", "store", "slow", "lines", "logs")


def completed(launch, seen, bound):
    """Whether the launcher did with a launch what its workers deserve."""
    return not [complaint for complaint in Judge(launch, seen, ours=False).judge(bound) if complaint.kind in _COMPLETED]


class Beside:
    """All complaints about `ours` where `theirs` differs."""

    def __init__(self, launch, ours, theirs):
        self.launch = launch
        self.ours = ours
        self.theirs = theirs
        self.complaints = []

    def compare(self):
        if self.ours["statuses"] != self.theirs["statuses"]:
            self.complain("status", self.ours["statuses"], self.theirs["statuses"])
        ours, theirs = workers(self.ours), workers(self.theirs)
        if sorted(ours) != sorted(theirs):
            self.complain("workers", sorted(ours), sorted(theirs))
        else:
            for key in sorted(ours):
                self.compare_worker(key, ours[key], theirs[key])
        for agent in range(self.launch.agents):
            if not self.complaints:
                self.compare_files(agent)
        return self.complaints

    def complain(self, kind, ours, theirs):
        self.complaints.append(Complaint(f"beside: {kind}", f"{ours}, and torchrun: {theirs}"))

    def compare_worker(self, key, ours, theirs):
        if ours["arguments"] != theirs["arguments"]:
            self.complain("arguments", f"{key}: {ours['arguments']}", theirs["arguments"])
        if self.launch.program not in ("run_path", "run_path_folder"):  # children of torchrun's own process there
            # For a closed stream ddprun's workers have /dev/null, so that no file of theirs gets its number.
            closed = {number for number, name in enumerate(("no_input", "no_output", "no_error")) if name in self.launch.around}
            if set(ours["open"]) - closed != set(theirs["open"]) - closed:
                self.complain("descriptors", f"{key}: {ours['open']}", theirs["open"])
            if ours["leads"] != theirs["leads"]:
                self.complain("session", f"{key}: {ours['leads']}", theirs["leads"])
        before, after = inherited(ours["inherited"]), inherited(theirs["inherited"])
        if before != after:
            self.complain("limits", f"{key}: {before}", after)
        mine, others = self.variables(ours["environment"]), self.variables(theirs["environment"])
        for name in sorted(set(mine) | set(others)):
            if mine.get(name) != others.get(name) and not self.is_newest(name, others.get(name)):
                self.complain("environment", f"{key}: {name}={mine.get(name)}", others.get(name))

    def is_newest(self, name, value):
        """Whether torchrun 2.15 makes a job of one node its own host, under a name of its own, whatever was given."""
        alone = self.launch.agents == 1 and value is not None
        return alone and (name == "MASTER_ADDR" and value in ("box.example", "localhost") or
                          name == "TORCHELASTIC_RUN_ID" and re.fullmatch(r"[0-9a-f-]{36}", value) is not None)

    def variables(self, environment):
        """Those that both launchers give alike."""
        launch = self.launch
        found = {name: value for name, value in environment.items() if not _OWN.fullmatch(name)}
        if launch.rendezvous in ("c10d", "standalone"):
            found.pop("MASTER_ADDR", None)  # pain 22
        if "by_name" in launch.around:
            found.pop("PATH")
        if launch.rendezvous == "standalone" or launch.agents == 1 and "rdzv_id" not in dict(map(tuple, launch.options)):
            found["TORCHELASTIC_RUN_ID"] = "random"  # as of torch 2.12 in any job of one node; "none" before
        if any(name.startswith("slurm") for name in launch.around):
            for name in ("TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS", "MASTER_ADDR"):
                found.pop(name, None)  # what Slurm says for it (SLURM.md)
        if launch.rendezvous == "c10d" and launch.agents == 2:
            for name in ("PWD", "PYTHONPATH", "SLURM_NODEID", "SLURM_PROCID"):
                found.pop(name, None)  # which of the agents is the first is open
        return found

    def compare_files(self, agent):
        """Files below --log_dir: names and lines."""
        if self.launch.rendezvous == "c10d" and self.launch.agents == 2:
            return
        # torchrun 2.15 gives a job of one node a UUID for a name, whatever was given (is_newest): nothing to compare with then.
        unnamed = self.launch.agents == 1 and any(_UUID.search(path) for path in self.theirs["logs"][agent])
        names = _ANY_NAME if unnamed else _NAMES
        ours, theirs = (files(each["logs"][agent], names) for each in (self.ours, self.theirs))
        if self.launch.fails and self.launch.doer == -1:  # a worker may be ended before its own error
            ours, theirs = ({name: text for name, text in each.items() if not name.endswith("error.json")}
                            for each in (ours, theirs))
        if sorted(ours) != sorted(theirs):
            self.complain("files", sorted(ours), sorted(theirs))
            return
        for name in ours:
            if name.endswith("stdout.log") and ours[name] != theirs[name] and self.launch.deed != "bytes":
                self.complain("files", f"{name}: {list((ours[name] - theirs[name]))[:3]}", list((theirs[name] - ours[name]))[:3])


def workers(seen):
    return {(note["attempt"], note["rank"]): note for notes in seen["notes"] for note in notes if note["note"] == "began"}


def files(logs, names):
    """{path without what is random or a name that the launcher gave: the lines of the workers}."""
    return {names.sub("/RUN/attempt", _RANDOM.sub("", path)): collections.Counter(
        line for line in text.split("\n") if "L~" in line) for path, text in logs.items()}
