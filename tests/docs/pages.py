"""The pages as programs: their blocks, the commands in them, and whether what they print is what the page shows.

A block that shows commands is a ```console block: a line "$ COMMAND" ("host1$ COMMAND": on that host), and below it what that
prints. A line "…" stands for any lines, "…" within a line for any text, and "[exit N]" closes a command that ends with status N.
Numbers from 100 on, those with a point or a unit, times, addresses and long hexadecimal numbers are samples; all else must be
printed as it stands there.
"""

import glob
import os
import re

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
# Pages for developers of ddprun: their commands build, test and release it.
INTERNAL = ("ARCHITECTURE.md", "RELEASING.md", "STYLE.md", "TESTING.md", "CONTRIBUTING.md")

_FENCE = re.compile(r"^ *```(\w*) ?(\w*)$")
_PROMPT = re.compile(r"^(\w*)\$ (.*)$")
_EXIT = re.compile(r"^\[exit (\d+)\]$")
# How a line begins that is a command, wherever it is.
_COMMAND = re.compile(
    r"^(\w*\$ |(?:[A-Z_]+=(?:\"[^\"]*\"|\S+) )+|~?[\w./-]*/)?"
    r"(ddprun|torchrun|python3|pip|apt|docker|kubectl|srun|sbatch|salloc|cmake|scp|ssh|curl|scripts/\w+|ulimit|install|systemctl|"
    r"export|\w+_bench|char_gpt|digits|finetune)( |$)")

_UNIT = r"(?:ns|us|ms|s|min|h|d|%|bytes|[KMGT]i?B|[KMG]bit/s|us)"
_SAMPLES = re.compile("|".join((
    r"(?P<time>\d\d(?::\d\d){2}(?:\.\d+)?)",
    r"(?P<address>\d+\.\d+\.\d+\.\d+)",
    r"(?P<hex>\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b)",
    rf"(?P<quantity>\b\d[\d,]*(?:\.\d+)? ?{_UNIT}(?![\w/])(?: \d+ ?{_UNIT}(?![\w/]))?)",
    r"(?P<number>(?<![\w.])\d[\d,]*\.\d+(?![\w.])|\b\d{1,3}(?:,\d{3})+\b|(?<![\w.])\d{3,}(?![\w.]))",
    r"(?P<bar>[█▉▊▋▌▍▎▏]+)",
    r"(?P<any>…)",
    r"(?P<blanks>\s+)")))
_PATTERNS = {
    "time": r"\d\d(?::\d\d){2}(?:\.\d+)?",
    "address": r"\d+\.\d+\.\d+\.\d+",
    "hex": r"[0-9a-f]{8,}",
    "quantity": rf"\d[\d,]*(?:\.\d+)? ?{_UNIT}(?: \d+ ?{_UNIT})?",
    "number": r"\d[\d,]*(?:\.\d+)?",
    "bar": r"[█▉▊▋▌▍▎▏]+",
    "any": r".*",
    "blanks": r"\s+"}


def pattern(line):
    """What a shown line may be in truth, as a compiled regular expression for a whole line."""
    parts, at = [], 0
    for sample in _SAMPLES.finditer(line):
        parts += [re.escape(line[at:sample.start()]), _PATTERNS[sample.lastgroup]]
        at = sample.end()
    return re.compile("".join([*parts, re.escape(line[at:])]).removeprefix(r"\s+").removesuffix(r"\s+"))


def differences(shown, printed):
    """What a command printed otherwise than the page shows: [text]; none: the page is true.

    Each shown line is one that was printed. Lines of several workers come in any order; all of them are shown, unless one is "…".
    """
    left = [line.strip() for line in printed if line.strip()]
    wrong = []
    for line in shown:
        if line.strip() in ("…", ""):
            continue
        expression = pattern(line)
        found = next((other for other in left if expression.fullmatch(other)), None)
        if found is None:
            wrong.append(f"not printed: {line}")
        else:
            left.remove(found)
    if "…" not in (line.strip() for line in shown):
        wrong += [f"not shown: {line}" for line in left] if shown else []
    return wrong


class Command:
    """A line behind a prompt, the host that the prompt names, the lines below it, and its status."""

    def __init__(self, host, words):
        self.host, self.words, self.shown, self.status = host, words, [], 0


class Block:
    """A fenced or indented block: the page, the number of its first line, its language, the word behind that, its lines."""

    def __init__(self, page, number, language, needs, lines):
        self.page, self.number, self.language, self.needs, self.lines = page, number, language, needs, lines

    def __str__(self):
        return f"{self.page}:{self.number}"

    def file(self):
        """The name of the file that the block shows; None if it shows none."""
        name = re.match(r"(?:#|//) file: (\S+)$", self.lines[0]) if self.lines else None
        return name.group(1) if name else None

    def text(self):
        return "\n".join(self.lines) + "\n"

    def commands(self):
        """[Command] of a console block."""
        commands = []
        for line in self.lines:
            prompt, status = _PROMPT.match(line), _EXIT.match(line)
            if prompt:
                commands.append(Command(*prompt.groups()))
            elif status:
                commands[-1].status = int(status.group(1))
            else:
                commands[-1].shown.append(line)
        return commands

    def shows_commands(self):
        """Whether the block shows commands, marked as such or not."""
        return self.language == "console" or self.file() is None and any(_COMMAND.match(line) for line in self.lines)


def blocks(page):
    """[Block] of a page, by its path below the root."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as source:
        lines = [*source.read().splitlines(), ""]
    found, at = [], 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        end = at + 1
        if fence:
            while not re.match(r"^ *```$", lines[end]):
                end += 1
            found.append(Block(page, at + 1, *fence.groups(), lines[at + 1:end]))
            end += 1
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1]):
            while lines[end].startswith("    "):
                end += 1
            found.append(Block(page, at + 1, "indented", "", [line[4:] for line in lines[at:end]]))
        at = end
    return found


def pages():
    """The paths of all pages for users, below the root."""
    found = [path for where in ("*.md", "docs/*.md", "docs/tutorials/*.md", "docker/*.md", "deploy/**/*.md", "docs/pictures/*.md")
             for path in glob.glob(os.path.join(ROOT, where), recursive=True)]
    names = sorted(os.path.relpath(path, ROOT) for path in found)
    return [name for name in names if os.path.basename(name) not in INTERNAL]
