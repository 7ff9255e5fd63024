"""The project's own files, read once, for the checks beside this file."""

import os
import re
import subprocess

PRODUCTION_FOLDERS = ("base", "rendezvous", "launcher", "tools", "worker", "examples")
CODE_FOLDERS = PRODUCTION_FOLDERS + ("tests", "bench")
_NOT_OURS = ("build/", ".cache/", ".git/")


class Finding:
    """One violation: where, what, and what to do instead."""

    def __init__(self, path, line, text):
        self.path = path
        self.line = line
        self.text = text

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


class Tree:
    """Paths relative to the root, with `/`, sorted; contents as text."""

    def __init__(self, files, root=None, others=()):
        """`files`: {path: text}. `others`: paths of what is no text."""
        self.root = root
        self._others = frozenset(others)
        self._files = dict(sorted(files.items()))

    @classmethod
    def from_directory(cls, root):
        """All files that git tracks or would track; without git, all but build output."""
        try:
            listed = subprocess.run(
                ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                check=True, capture_output=True).stdout.decode().split("\0")
        except (FileNotFoundError, subprocess.CalledProcessError):
            listed = [
                os.path.relpath(os.path.join(folder, name), root)
                for folder, _, names in os.walk(root) for name in names
            ]
        files, others = {}, []
        for path in listed:
            full = os.path.join(root, path)
            if not path or path.startswith(_NOT_OURS) or "__pycache__" in path or not os.path.isfile(full):
                continue
            with open(full, "rb") as source:
                raw = source.read()
            if b"\0" not in raw:
                files[path] = raw.decode("utf-8", errors="replace")
            else:
                others.append(path)
        return cls(files, root, others)

    def paths(self, folders=None, suffixes=None):
        return [
            path for path in self._files
            if (folders is None or path.split("/")[0] in folders) and (suffixes is None or path.endswith(suffixes))
        ]

    def __contains__(self, path):
        return path in self._files or path in self._others

    def text(self, path):
        return self._files[path]

    def lines(self, path):
        """(number, text) from 1."""
        return enumerate(self._files[path].splitlines(), start=1)

    def code(self, path):
        """The C++ text with comments and string contents blanked; line numbers stay."""
        return blank_cpp(self._files[path])


_CPP_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def blank_cpp(text):
    """Comments become blanks, literals keep only their quotes; newlines stay."""

    def blank(match):
        token = match.group(0)
        if token.startswith("'") and match.start() and (text[match.start() - 1].isalnum()):
            return token  # a digit separator: 1'000'000
        keep = '""' if token.endswith('"') else "' '" if token.startswith("'") else ""
        return keep + "".join("\n" if c == "\n" else " " for c in token[len(keep):])

    # Includes keep their path.
    lines = text.split("\n")
    includes = {i: line for i, line in enumerate(lines) if re.match(r"\s*#\s*include\b", line)}
    blanked = _CPP_TOKEN.sub(blank, text).split("\n")
    for i, line in includes.items():
        blanked[i] = line
    return "\n".join(blanked)
