"""What comments and documents cite is there: files, sections, decisions, rules of the protocol, names in backticks."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from english import passages  # noqa: E402
from tree import CODE_FOLDERS, Finding, Tree  # noqa: E402

_FOLDERS = "base|bench|cmake|deploy|docker|docs|examples|launcher|proto|python|rendezvous|scripts|tests|worker"
_PATH = re.compile(rf"(?<![\w/.])((?:{_FOLDERS})/[\w./-]*\w\.(?:cc|h|py|md|proto|txt|sh|cmake|in|yml|json))\b")
_FILE = re.compile(r"(?<![\w/.<\"*-])([a-z]\w+\.(?:cc|h|proto)|[A-Z][A-Z_]+\.md)\b")
_DECISION = re.compile(r"\bdecisions? (\d+)(?:(?:,| and| or) (\d+))*", re.I)
_RULE = re.compile(r"\b([A-Z]\d{1,2})\b(?= of (?:the )?PROTOCOL|\)? in PROTOCOL)|PROTOCOL(?:\.md)?,? ([A-Z]\d{1,2})\b")
_SECTION = re.compile(r"([A-Z][A-Z_]+\.md)(?:'s|,)? (?:section )?[\"“]([^\"”]+)[\"”]")
_CALL = re.compile(r"`(?:\w+::)*(\w+)\(\)`")
_NAME = re.compile(r"`((?:\w+::)*(?:[A-Z][a-z]+){2,}\w*|[a-z]+(?:_[a-z0-9]+)+_?)`")


def check(tree):
    """Citations that lead nowhere."""
    finder = _Finder(tree)
    findings = []
    for path in tree.paths():
        if path.startswith(("tests/lint/", "tests/unit/launcher/advice/messages")):
            continue
        for number, prose, _ in passages(path, tree.text(path), raw=True):
            findings += [Finding(path, number, text) for text in finder.dangling(path, prose)]
    return findings


class _Finder:
    def __init__(self, tree):
        self.tree = tree
        self.files = {os.path.basename(path) for path in tree.paths()} | _OTHERS
        self.decisions = {int(match.group(1)) for path in tree.paths(("docs",))
                          if (match := re.match(r"docs/decisions/(\d+)-", path))}
        protocol = tree.text("docs/PROTOCOL.md") if "docs/PROTOCOL.md" in tree else ""
        self.rules = set(re.findall(r"\b[A-Z]\d{1,2}\b", protocol))
        self.words = set()
        for path in tree.paths():
            if path.startswith(CODE_FOLDERS + ("proto", "python", "scripts")) or not path.endswith(".md"):
                code = tree.code(path) if path.endswith((".h", ".cc")) else tree.text(path)
                self.words.update(re.findall(r"\w+", code))

    def dangling(self, path, prose):
        for target in _PATH.findall(prose):
            if target not in self.tree:
                yield f"{target} doesn't exist"
        for target in _FILE.findall(prose):
            if target not in self.files:
                yield f"no file is called {target}"
        for match in _DECISION.finditer(prose):
            for number in re.findall(r"\d+", match.group()):
                if int(number) not in self.decisions:
                    yield f"there is no decision {number}"
        for rules in _RULE.findall(prose):
            for rule in filter(None, rules):
                if rule not in self.rules:
                    yield f"docs/PROTOCOL.md has no {rule}"
        for name in _CALL.findall(prose) + [name.rpartition("::")[2] for name in _NAME.findall(prose)]:
            if name not in self.words:
                yield f"`{name}` is nowhere in the code"


# Files of others that comments speak of.
_OTHERS = set()


if __name__ == "__main__":
    for finding in check(Tree.from_directory(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))):
        print(finding)
