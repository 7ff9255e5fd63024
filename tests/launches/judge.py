"""What a launch must show: by itself, and beside what another launcher showed of the same launch."""

import collections
import dataclasses
import re
import signal

from launch import MERGED
from worker import lines_of


@dataclasses.dataclass(frozen=True)
class Complaint:
    """What is wrong: the kind, which is the same for one cause, and the words."""

    kind: str
    words: str

    def __str__(self):
        return f"{self.kind}: {self.words}"


class Judge:
    """All complaints about what was seen of one launch. `ours`: it was ddprun, which promises more than torchrun."""

    def __init__(self, launch, seen, ours=True):
        self.launch = launch
        self.seen = seen
        self.ours = ours
        self.plan = launch.plan("", 0)
        self.complaints = []

    def complain(self, kind, words):
        self.complaints.append(Complaint(kind, words))

    def judge(self, bound):
        launch, seen = self.launch, self.seen
        for note in self.all_notes("refused"):
            self.complain("store", f"rank {note['rank']} can't meet the others at {note['why']}")
        if seen["running"]:
            self.complain("hangs", f"still running: {', '.join(sorted(set(seen['running'].values())))}")
            return self.complaints
        if seen["statuses"] != [launch.status] * launch.agents:
            self.complain("status", f"{seen['statuses']}, deserved: {launch.status}")
        self.judge_workers()
        if not self.complaints:
            self.judge_lines()
        if self.ours and seen["left"]:
            self.complain("processes left", ", ".join(sorted(seen["left"].values())))
        if self.ours:
            self.judge_files()
        if seen["took"] > bound:
            self.complain("slow", f"{seen['took']:.1f} s")
        return self.complaints

    def all_notes(self, kind):
        return [note for notes in self.seen["notes"] for note in notes if note["note"] == kind]

    # ---------------------------------------------------------------- the workers

    def judge_workers(self):
        launch = self.launch
        began = collections.Counter((note["attempt"], note["rank"]) for note in self.all_notes("began"))
        wanted = collections.Counter((attempt, rank) for attempt in range(launch.attempts) for rank in range(launch.world))
        if began != wanted:
            self.complain("workers", f"(attempt, rank) of those that began: {sorted(began.elements())}, "
                          f"not {sorted(wanted.elements())}")
            return
        for agent, notes in enumerate(self.seen["notes"]):
            for note in notes:
                if note["note"] == "began":
                    self.judge_worker(agent, note)
        if launch.deed == "upload":
            done = sorted(note["rank"] for note in self.all_notes("uploaded"))
            wanted = list(range(launch.world)) if launch.doer == -1 else [launch.doer]
            if done != wanted:
                self.complain("upload", f"finished by ranks {done}, not {wanted}")

    def judge_worker(self, agent, note):
        launch = self.launch
        environment = note["environment"]
        count = launch.workers_of(agent)
        options = dict(map(tuple, launch.options))
        # Which agent is the first is open but for static ones.
        group_rank = int(environment.get("GROUP_RANK", -1))
        local = {note_["rank"]: place for place, note_ in enumerate(sorted(
            (each for each in self.seen["notes"][agent] if each["note"] == "began" and each["attempt"] == note["attempt"]),
            key=lambda each: each["rank"]))}[note["rank"]]
        wanted = {"WORLD_SIZE": launch.world, "LOCAL_WORLD_SIZE": count, "ROLE_WORLD_SIZE": launch.world,
                  "ROLE_RANK": note["rank"], "GROUP_WORLD_SIZE": launch.agents, "TORCHELASTIC_MAX_RESTARTS": launch.restarts,
                  "LOCAL_RANK": 0 if "virtual_local_rank" in options else local, "ROLE_NAME": options.get("role", "default"),
                  "TORCHELASTIC_USE_AGENT_STORE": "True"}
        if launch.rendezvous == "static" and launch.agents == 2:
            wanted["GROUP_RANK"] = agent
        if launch.rendezvous == "static" and launch.address:
            wanted["MASTER_ADDR"] = launch.host_of_address()
        if "rdzv_id" in options and launch.rendezvous != "standalone":
            wanted["TORCHELASTIC_RUN_ID"] = options["rdzv_id"]
        if "threads" in launch.around:
            wanted["OMP_NUM_THREADS"] = 3
        if "own_site" in launch.around:
            wanted["OWN_SITE"] = "seen"
        if "odd_variables" in launch.around:
            wanted.update(BLANKS="a  b", LINES_OF_TWO="one\ntwo", EMPTY="", DOLLAR="$x ${local_rank} $$", BYTES="x\xffy")
        if group_rank not in range(launch.agents):
            self.complain("environment", f"rank {note['rank']}: GROUP_RANK={group_rank}")
        for name, value in wanted.items():
            if environment.get(name) != str(value):
                self.complain("environment", f"rank {note['rank']}: {name}={environment.get(name)}, not {value}")
        given = [expand(word, local) for word in launch.arguments]
        if note["arguments"] != given:
            self.complain("arguments", f"rank {note['rank']}: {note['arguments']}, not {given}")
        folder = None if "gone" in launch.around else f"/mnt/launch/{agent}"
        if note["folder"] != folder:
            self.complain("folder", f"rank {note['rank']}: {note['folder']}, not {folder}")
        self.judge_inherited(agent, note)
        if not note["leads"] and launch.program != "run_path" and launch.program != "shell_waits":
            self.complain("session", f"rank {note['rank']} doesn't lead a session of its own")

    def judge_inherited(self, agent, note):
        """A worker has the limits and ignored signals that the launcher was started with, and no descriptors but the three."""
        before, now = inherited(self.seen["before"][agent]), inherited(note["inherited"])
        for name, value in before.items():
            if now.get(name) != value:
                self.complain("limits", f"rank {note['rank']}: {name} is {now.get(name)}, and was {value}")
        closed = {fd for fd, name in enumerate(("no_input", "no_output", "no_error")) if name in self.launch.around}
        odd = set(note["open"]) - {0, 1, 2} | {0, 1, 2} - closed - set(note["open"])
        if odd:
            self.complain("descriptors", f"rank {note['rank']}: {sorted(note['open'])} are open")

    # ---------------------------------------------------------------- lines

    def judge_lines(self):
        for agent in range(self.launch.agents):
            around = self.launch.around
            if set(MERGED) & set(around):
                self.judge_console(agent, "out", ((1, "out"), (2, "err")))
            else:
                if "no_output" not in around:
                    self.judge_console(agent, "out", ((1, "out"),))
                if "no_error" not in around:
                    self.judge_console(agent, "err", ((2, "err"),))
            self.judge_logs(agent)

    def shown(self, agent):
        """(rank, local rank, attempt) of the workers of an agent."""
        found = []
        for attempt in range(self.launch.attempts):
            ranks = sorted(note["rank"] for note in self.seen["notes"][agent]
                           if note["note"] == "began" and note["attempt"] == attempt)
            found += [(rank, local, attempt) for local, rank in enumerate(ranks)]
        return found

    def streams(self, option, local):
        """Bits of the streams of a local rank that --tee or --redirects name."""
        options = dict(map(tuple, self.launch.options))
        if options.get("log_dir") == "/dev/null":
            return 0
        value = options.get(option, "0")
        if ":" not in value:
            return int(value)
        return dict(tuple(map(int, part.split(":"))) for part in value.split(",")).get(local, 0)

    def judge_console(self, agent, name, streams):
        """`streams` of an agent's workers are in what it wrote to `name`, as whole lines."""
        options = dict(map(tuple, self.launch.options))
        wanted = collections.Counter()
        for rank, local, attempt in self.shown(agent):
            for stream, of_stream in streams:
                tee = self.streams("tee", local) & stream
                if self.streams("redirects", local) & stream and not tee:
                    continue
                if "local_ranks_filter" in options and str(local) not in options["local_ranks_filter"].split(","):
                    continue
                prefix = f"[{options.get('role', 'default')}{local}]:" if tee else ""
                for line in lines_of(self.plan, attempt, rank, of_stream):
                    wanted[prefix + line.decode("latin-1")] += 1
        text = self.seen[name][agent]
        if "terminal" in self.launch.around:
            text = text.replace("\r\n", "\n")
        # The report shows the last lines of stderr again, indented.
        found = collections.Counter(line for line in text.split("\n") if "L~" in line and not (
            (2, "err") in streams and line.startswith("   ")))
        if self.launch.deed == "bytes" and not self.ours:
            return  # torchrun replaces what isn't UTF-8
        torn = [line for line in found if line not in wanted]
        missing = wanted - found
        if torn:
            self.complain("lines", f"std{name} has {len(torn)} lines that no worker has written, such as {torn[0][:300]!r}")
        elif missing:
            self.complain("lines", f"std{name} misses {sum(missing.values())} of {sum(wanted.values())} lines, such as "
                          f"{next(iter(missing))[:300]!r}")
        elif found != wanted:
            self.complain("lines", f"std{name} has lines twice, such as {next(iter(found - wanted))[:300]!r}")

    def judge_logs(self, agent):
        for rank, local, attempt in self.shown(agent):
            for stream, name in ((1, "out"), (2, "err")):
                if not (self.streams("tee", local) | self.streams("redirects", local)) & stream:
                    continue
                wanted = collections.Counter(line.decode("latin-1") for line in lines_of(self.plan, attempt, rank, name))
                paths = [path for path in self.seen["logs"][agent]
                         if re.search(rf"attempt_{attempt}(\.g\d+)?/{local}/std{name}\.log$", path)]
                if "log_dir" not in dict(map(tuple, self.launch.options)):
                    continue  # in the folder for temporary files
                if len(paths) != 1:
                    self.complain("logs", f"files of std{name} of local rank {local} in attempt {attempt}: {paths}")
                    continue
                text = self.seen["logs"][agent][paths[0]]
                found = collections.Counter(line for line in text.split("\n") if "L~" in line)
                if found != wanted:
                    odd = next(iter((found - wanted) or (wanted - found)))
                    self.complain("logs", f"{paths[0]} isn't what rank {rank} wrote: {odd[:300]!r}")

    # ---------------------------------------------------------------- files

    def judge_files(self):
        options = dict(map(tuple, self.launch.options))
        kept = []
        if options.get("log_dir") != "/dev/null" and "log_dir" not in options and (
                {"tee", "redirects", "duplicate_stdout_filters", "duplicate_stderr_filters"} & set(options)
                or self.launch.fails or self.launch.attempts > 1):
            kept.append(r"/torchelastic_\w+/")
        for folder in ("isolated_tmp", "long_tmp", "runtime"):
            if folder in self.launch.around:
                kept.append(r"^/tmp/(t m p|t+|runtime)$")
        left = [path for path in self.seen["files"] if not any(re.search(pattern, path) for pattern in kept)]
        if left:
            self.complain("files left", ", ".join(left[:6]))


# Fields of /proc/PID/status; "oom" is oom_score_adj.
_INHERITED = ("Umask", "SigBlk", "SigIgn", "CapEff", "NoNewPrivs", "Seccomp", "Groups", "Uid", "oom")
# Whether these signals are ignored isn't compared: Python ignores PIPE and XFSZ by itself, and a launcher that handles HUP, INT,
# QUIT and TERM gives workers the defaults.
_OPEN = sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT,
                                             signal.SIGTERM))


def inherited(text):
    """{name: value} of what a process passes on, in the text of /proc/PID/limits and status."""
    found = {}
    for line in text.splitlines():
        limit = re.match(r"(Max .*?)  +(\S+) +(\S+)", line)
        name, _, value = line.partition(":\t")
        if limit:
            found[limit[1]] = limit.group(2, 3)
        elif name == "SigIgn":
            found[name] = hex(int(value, 16) & ~_OPEN)
        elif name in _INHERITED:
            found[name] = value.strip()
    return found


def expand(word, local):
    """The macros of an argument, as Python's string.Template has them."""
    return re.sub(r"\$(?:(\$)|local_rank\b|\{local_rank\})", lambda found: found.group(1) or str(local), word)


def judge(launch, seen, bound, ours=True):
    return Judge(launch, seen, ours).judge(bound)
