"""What comments and documents cite is there: files, decisions, rules of the protocol, names in backticks."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from english import passages  # noqa: E402
from tree import Finding, Tree  # noqa: E402

_FOLDERS = "base|bench|cmake|deploy|docker|docs|examples|launcher|proto|python|rendezvous|scripts|tests|tools|worker"
_PATH = re.compile(rf"(?<![\w/.])((?:{_FOLDERS})/[\w./-]*\w\.(?:cc|h|py|md|proto|txt|sh|cmake|in|yml))\b")
_FILE = re.compile(r"(?<![\w/.<\"*:-])([a-z]\w+\.(?:cc|h|proto)|[A-Z][A-Z_]+\.md)\b")
_ENDINGS = re.compile(r"([\w/]+\w)\.\{(\w+(?:,\w+)+)\}")  # name.{h,cc}
_PART = re.compile(r"(?<![\w/.<\"*:-])((?:[a-z]\w*/)+\w+\.(?:cc|h|html|js|css|proto|py|yaml))\b")
_DECISION = re.compile(r"\bdecisions? (\d+)(?:(?:,| and| or) (\d+))*", re.I)
_RULE = re.compile(r"\bPROTOCOL(?:\.md)?,? ([RSW]\d{1,2})\b|\b([RSW]\d{1,2}) of PROTOCOL")
_ELSEWHERE = re.compile(r"\btorchrun-contract\b|\bdesign\.md\b")
_CALL = re.compile(r"`(?:\w+::)*(\w+)\(\)`")
_NAME = re.compile(r"`((?:\w+::)*(?:[A-Z][a-z]+){2,}\w*|[a-z]+(?:_[a-z0-9]+)+_?)`")
# Made by the build, or of other projects.
_OTHER_FILES = {"version.h", "tcp.h", "sysexits.h", "hwloc.h", "nvml.h", "nccl.h", "pair.cc", "tcp_server_posix.cc"}
_OTHER_NAMES = set("""
    AveragedModel FullyShardedDataParallel all_reduce_perf command_file ds_report ft_launcher fully_shard get_ema_multi_avg_fn
    core_events_smoke_test limit_all_gathers local_lock num_replicas unshard mpirun_hostfile
""".split())


def check(tree):
    """Citations that lead nowhere."""
    finder = _Finder(tree)
    findings = []
    for path in tree.paths():
        # The page on style shows names that are refused.
        if path.startswith(("tests/lint/", "tests/unit/launcher/advice/messages")) or path == "docs/STYLE.md":
            continue
        for number, prose, _ in passages(path, tree.text(path), raw=True):
            findings += [Finding(path, number, text) for text in finder.dangling(path, prose)]
    return findings


class _Finder:
    def __init__(self, tree):
        self.tree = tree
        self.files = {os.path.basename(path) for path in tree.paths()} | _OTHER_FILES
        self.parts = {path[at:] for path in tree.paths() for at in range(len(path)) if at == 0 or path[at - 1] == "/"}
        self.decisions = {int(match.group(1)) for path in tree.paths(("docs",))
                          if (match := re.match(r"docs/decisions/(\d+)-", path))}
        protocol = tree.text("docs/PROTOCOL.md") if "docs/PROTOCOL.md" in tree else ""
        self.rules = set(re.findall(r"\b[A-Z]\d{1,2}\b", protocol))
        self.words = set(_OTHER_NAMES)
        for path in tree.paths():
            if path.endswith((".h", ".cc")):
                text = tree.code(path) + " ".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', tree.text(path)))
            elif path.endswith(".md"):
                continue
            else:
                text = tree.text(path)
            self.words.update(re.findall(r"\w+", text))

    def dangling(self, path, prose):
        prose = _ENDINGS.sub(lambda match: " ".join(f"{match[1]}.{ending}" for ending in match[2].split(",")), prose)
        for target in _PART.findall(prose) if path.endswith(".md") else ():
            if target not in self.parts:
                yield f"no path ends in {target}"
        for target in _PATH.findall(prose):
            if target not in self.tree and os.path.basename(target) not in _OTHER_FILES:
                yield f"{target} doesn't exist"
        for target in _FILE.findall(prose):
            if target not in self.files:
                yield f"no file is called {target}"
        for match in _DECISION.finditer(prose):
            for number in re.findall(r"\d+", match.group()):
                if int(number) > 0 and int(number) not in self.decisions:
                    yield f"there is no decision {number}"
        for match in _ELSEWHERE.findall(prose):
            yield f"'{match}' is in no file of the project"
        for rules in _RULE.findall(prose):
            for rule in filter(None, rules):
                if rule not in self.rules:
                    yield f"docs/PROTOCOL.md has no {rule}"
        for name in _CALL.findall(prose) + [name.rpartition("::")[2] for name in _NAME.findall(prose)]:
            if name not in self.words and name.removeprefix("ddprun_") not in self.words:
                yield f"`{name}` is nowhere in the code"


if __name__ == "__main__":
    for finding in check(Tree.from_directory(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))):
        print(finding)
