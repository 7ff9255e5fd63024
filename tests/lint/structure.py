"""Include guards, dead files, proto comments."""

import re

from tree import CODE_FOLDERS, Finding

# Headers of ours in place of a library's that isn't installed; only other libraries include them.
_STAND_INS = ("worker/torch/collectives/gloo_stub/",)


def check(tree):
    """Guards by path, sources that no CMakeLists.txt names, proto fields without a comment."""
    return _check_guards(tree) + _check_dead_files(tree) + _check_protos(tree)


def _check_guards(tree):
    findings = []
    for path in tree.paths(CODE_FOLDERS, (".h",)):
        guard = "DDPRUN_" + re.sub(r"[/.-]", "_", path).upper() + "_"
        text = tree.text(path)
        if not re.search(rf"^#ifndef {guard}\n#define {guard}$", text, re.MULTILINE) or \
                not re.search(rf"#endif  // {guard}\n\Z", text):
            findings.append(Finding(path, 1, f"the include guard must be {guard} (#ifndef, #define, #endif  // {guard})"))
    return findings


def _check_dead_files(tree):
    """A .cc that no CMakeLists.txt of its folder or above names, or takes with all others; a .h that nobody includes."""
    findings = []
    lists = {path: tree.text(path) for path in tree.paths() if path.endswith(("CMakeLists.txt", ".cmake"))}
    included = set()
    for path in tree.paths(CODE_FOLDERS, (".h", ".cc")):
        included.update(re.findall(r'#include "([^"]+)"', tree.text(path)))
    for path in tree.paths(CODE_FOLDERS, (".cc",)):
        folder = path
        while "/" in folder:
            folder = folder.rsplit("/", 1)[0]
            relative = path[len(folder) + 1:]
            text = lists.get(folder + "/CMakeLists.txt", "")
            takes_all = "/" not in relative and "CONFIGURE_DEPENDS *.cc)" in text
            if takes_all or re.search(rf"(?<![\w/.-]){re.escape(relative)}(?![\w.])", text):
                break
        else:
            findings.append(Finding(path, 1, "no CMakeLists.txt of its folders names it: add it to a target or delete it"))
    for path in tree.paths(CODE_FOLDERS, (".h",)):
        # Public headers are included by the path below include/; stand-ins are included by a library's headers.
        if not any(name == path or path.endswith("/" + name) for name in included) and not path.startswith(_STAND_INS):
            findings.append(Finding(path, 1, "nobody includes it: use it or delete it"))
    return findings


_FIELD = re.compile(r"^\s*(optional |repeated )?[\w.<>, ]+ \w+ = \d+(\s*\[.*\])?;")
_MESSAGE = re.compile(r"^\s*(message|oneof|enum|service)\s+(\w+)\s*\{")


def _check_protos(tree):
    """Each block of fields without a blank or comment line between them starts with a comment, or its
    message has one; a message without fields needs none."""
    findings = []
    for path in tree.paths(("proto",), (".proto",)):
        commented = False
        kinds = []
        for number, line in tree.lines(path):
            stripped = line.strip()
            if stripped.startswith("//"):
                commented = True
                continue
            opened = _MESSAGE.match(line)
            if opened:
                kinds.append((opened.group(1), commented))
            if _FIELD.match(line) and kinds and kinds[-1][0] == "message" and not stripped.startswith("option "):
                if not commented and not kinds[-1][1] and not _explains_itself(stripped):
                    findings.append(Finding(path, number, f"'{stripped}' has no comment (meaning, unit, default)"))
            if not _FIELD.match(line):
                commented = False
            kinds = kinds[:len(kinds) - max(0, line.count("}") - line.count("{"))] if "}" in line else kinds
    return findings


def _explains_itself(field):
    """Fields whose type is one of our own messages are explained there."""
    return re.match(r"(repeated )?[A-Z]\w* ", field) is not None
