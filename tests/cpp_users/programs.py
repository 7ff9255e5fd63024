"""The programs of users: what stands at the head of each, how it is run, and what it leaves."""

import array
import glob
import json
import os
import re
import shlex
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import bed  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
GLOBAL_BATCH = 12
# What a Session's program is run with, unless its head says otherwise. The journal goes to the pipe that the test reads.
# 160 steps: a worker may be three pipes of lines (37 each) ahead of the test when the second kill is decided.
OF_SESSION = "--batch_size %batch --epochs 20 --checkpoint_every 10 --output_dir %out --journal /dev/stdout"
# A worker that is killed after this step has a checkpoint to resume from.
FIRST_SAVED = 10
# The test chooses the worker to kill, and when, by the lines of steps; a worker may be this many bytes of lines ahead of the
# test.
PIPE_BYTES = 4096
STEP = re.compile(rb'"generation":(?P<generation>\d+).*"step":(?P<step>\d+)|^step (?P<at>\d+) of generation (?P<of>\d+)')


class Program:
    """A program and what its head says, in lines `// WORD: …`:

    EXPECT: equal [within TOLERANCE]  it trains to the same parameters on 1, 2 and 3 workers, and over two kills
    EXPECT: does not compile          the other EXPECT lines are in the compiler's output
    EXPECT: TEXT                      it fails, and the output has the text (a regular expression); one a line
    RUN: ARGUMENTS                    in place of OF_SESSION; %out is a folder, %batch the samples of a worker's pass
    OPTIONS: ARGUMENTS                beside it
    LAUNCH: ARGUMENTS                 of ddprun
    ENVIRONMENT: NAME=VALUE …
    BATCH: N                          samples of a pass of all workers together; 12
    SECONDS: N                        the time limit of a wrong one, from its start; 2
    """

    def __init__(self, path):
        self.path = path
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.head = {}
        with open(path, encoding="utf-8") as source:
            self.lines = source.read().splitlines()
        for line in self.lines:
            if match := re.match(r"// ([A-Z]+): (.*)", line):
                self.head.setdefault(match[1], []).append(match[2])
        self.expected = self.head.get("EXPECT")
        if not self.expected:
            raise ValueError(f"{path} doesn't begin with what is expected of it: // EXPECT: …")
        self.compiles = self.expected[0] != "does not compile"
        equal = re.fullmatch(r"equal(?: within (\S+))?", self.expected[0])
        self.is_good = equal is not None
        self.tolerance = float(equal[1] or 1e-5) if equal else 0.0
        self.seconds = float(self.one("SECONDS", "2"))

    def one(self, word, default=""):
        return " ".join(self.head.get(word, [default]))

    def arguments(self, world, out):
        """The program's command line on so many workers."""
        text = f"{self.one('RUN', OF_SESSION)} {self.one('OPTIONS')}"
        batch = int(self.one("BATCH", str(GLOBAL_BATCH))) // world
        return [word.replace("%out", out).replace("%batch", str(batch)) for word in shlex.split(text)]


def all_programs():
    return [Program(path) for path in sorted(glob.glob(os.path.join(FOLDER, "*.cc")))]


class Run:
    """One job of a program, under the installed ddprun."""

    def __init__(self, installed, program, world, launch=()):
        self.bed = bed.Bed()
        self.out = self.bed.path("out")
        self.text = b""
        command = [os.path.join(installed.prefix, "bin", "ddprun"), "--standalone", "--no_python", "--nproc_per_node", str(world),
                   "--event_log", self.bed.events.path, *launch, *shlex.split(program.one("LAUNCH")),
                   installed.program(program.name), *program.arguments(world, self.out)]
        environment = {**self.bed.environment, **dict(word.split("=", 1) for word in program.one("ENVIRONMENT").split())}
        read, write = os.pipe2(os.O_CLOEXEC)
        bed.set_pipe_size(write, PIPE_BYTES)
        self._output = read
        self.agent = self.bed.start_process(program.name, command, env=environment, stdout=write, stderr=write)
        os.close(write)

    def finish(self, kills=0):
        """Reads to the end, its exit status. kills: of a worker each, rank 1 first, one in each of the first generations."""
        generation, rest = 0, b""
        while chunk := os.read(self._output, PIPE_BYTES):
            self.text += chunk
            *lines, rest = (rest + chunk).split(b"\n")
            for match in filter(None, map(STEP.search, lines)):
                of = int(match["generation"] or match["of"])
                if kills and of > generation and int(match["step"] or match["at"]) > FIRST_SAVED:
                    generation, kills = of, kills - 1
                    self._kill(kills % 2)
        status = self.agent.wait(bed.PATIENCE)
        if kills:
            raise AssertionError(f"it ended before {kills} kills\n{self.text.decode(errors='replace')}")
        return status

    def _kill(self, rank):
        self.bed.follower.refresh()
        ended = {line["worker_pid"] for line in self.bed.events.find("worker_exit")}
        running = [int(line["worker_pid"]) for line in self.bed.events.find("worker_started")
                   if line["worker_pid"] not in ended]
        os.kill(sorted(running)[rank], 9)

    def seconds(self):
        """From the start of its workers to its end."""
        self.bed.follower.refresh()
        return self.bed.events.lines[-1]["t"] - self.bed.events.find("worker_started")[0]["t"]

    def close(self):
        os.close(self._output)
        left = self.bed.stop()
        self.bed.close()
        return left

    def losses(self):
        """By step: means over all ranks."""
        path = os.path.join(self.out, "metrics.jsonl")
        if not os.path.exists(path):
            return {}
        with open(path, encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        return {record["step"]: record["loss"] for record in records if "loss" in record}

    def epochs(self):
        """What the console says of each: {epoch: loss}."""
        return {int(epoch): float(loss) for epoch, loss in re.findall(rb"^epoch (\d+)  step \d+  loss (\S+)", self.text, re.M)}

    def model(self):
        """The parameters in the newest checkpoint: {name: values}."""
        files = glob.glob(os.path.join(self.out, "**", "checkpoint-*-s??????????.safetensors"), recursive=True)
        newest = max(files, key=lambda path: path[-len("0000000000.safetensors"):])
        return {name: values for name, values in read_tensors(newest).items() if name.startswith("model.")}


def read_tensors(path):
    """{name: values} of a safetensors file, as far as they are floating-point numbers."""
    with open(path, "rb") as source:
        header = json.loads(source.read(struct.unpack("<Q", source.read(8))[0]))
        body = source.read()
    tensors = {}
    for name, entry in header.items():
        begin, end = entry.get("data_offsets", (0, 0))
        if entry.get("dtype") == "F32":
            tensors[name] = array.array("f", body[begin:end])
        elif entry.get("dtype") == "BF16":
            halves = array.array("H", body[begin:end])
            tensors[name] = array.array("f", array.array("I", [half << 16 for half in halves]).tobytes())
    return tensors


def difference(one, other):
    """The largest between two models, as a share of the largest value."""
    if one.keys() != other.keys() or not one:
        raise AssertionError(f"other names: {sorted(one)} and {sorted(other)}")
    largest = max(abs(value) for values in one.values() for value in values)
    return max(abs(a - b) for name in one for a, b in zip(one[name], other[name], strict=True)) / largest
