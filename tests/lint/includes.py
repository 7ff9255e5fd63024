"""What a file of ours names it sees: most builds compile a folder's files as one unit, in which a missing include isn't missed.

By names alone, and so only of types, functions and constants that are the only ones of their name: some 1,600.
"""

import re

from tree import CODE_FOLDERS, Finding

_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
_KIND = r"(?:class|struct|enum class|enum|union)(?: \[\[\w+\]\])?"
_BODY = r"(?: final)?(?: : [^;{]*| )?\{"
_TEMPLATE = r"(?:template <[^\n]*>\s)?"
# What a header has for others begins a line: namespaces are not indented.
_TYPE = re.compile(rf"^{_TEMPLATE}{_KIND} ([A-Z]\w+){_BODY}|^using ([A-Z]\w+) =", re.MULTILINE)
_FUNCTION = re.compile(r"^[A-Za-z][\w:<>,&* \[\]]*[ &*>]([A-Z]\w+)\(", re.MULTILINE)
_CONSTANT = re.compile(r"^(?:inline |extern |constexpr |const |static )+[\w:<>,&* ]*?\b(k[A-Z]\w+)\b(?=[ \[={(;])", re.MULTILINE)
# Of the same name, and perhaps what is meant: members, and what a file declares or takes from another namespace.
_NESTED_TYPE = re.compile(rf"^ +{_KIND} ([A-Z]\w+){_BODY}|^ +using ([A-Z]\w+) =", re.MULTILINE)
_METHOD = re.compile(r"^ +[A-Za-z~][\w:<>,&* \[\]]*[ &*>]([A-Z]\w+)\(|[A-Z]\w*>?::([A-Z]\w+)\(", re.MULTILINE)
_INNER_CONSTANT = re.compile(r"^ +(?:static |constexpr |const |inline )+[\w:<>,&* ]*?\b(k[A-Z]\w+)\b(?=[ \[={(;])",
                             re.MULTILINE)
_ENUMERATORS = re.compile(r"\benum\b[^{;()]*\{([^}]*)\}")
_DECLARED = re.compile(rf"^ *{_TEMPLATE}{_KIND} ([A-Z]\w+)(?: : \w+)?;|^ *using [\w:]+::([A-Z]\w+);", re.MULTILINE)
_MESSAGE = re.compile(r"^ *(?:message|enum) (\w+)", re.MULTILINE)
_THEIRS_TOO = {"AdamW"}  # LibTorch's, of which a class of ours inherits
_TEST = re.compile(r"\bTEST(?:_F|_P)?\(\w+, \w+\)|\bINSTANTIATE_TEST_SUITE_P\(\s*\w+")
_USED_TYPE = re.compile(r"(?<![\w:.>~])([A-Z]\w+)\b(?!\s*\()")
_USED_FUNCTION = re.compile(r"(?<![\w:.>~])([A-Z]\w+)\(")
_OURS = re.compile(r"(?<![\w:])(?:(?:ddprun|launcher|rendezvous|worker|shm|sim|bench|examples)::)+(?=[A-Zk])")  # namespaces
_USED_CONSTANT = re.compile(r"(?<![\w:.>])(k[A-Z]\w+)\b")


def check(tree):
    """A name that one header of ours has alone, in a file that includes that header in no way."""
    codes = {path: _TEST.sub("", tree.code(path)) for path in tree.paths(CODE_FOLDERS, (".h", ".cc"))}
    messages = {name for path in tree.paths(("proto",), (".proto",)) for name in _MESSAGE.findall(tree.text(path))}
    types = _homes(codes, _TYPE, _NESTED_TYPE, messages | _THEIRS_TOO)
    functions = _homes(codes, _FUNCTION, _METHOD, messages)
    enumerators = {name for code in codes.values() for names in _ENUMERATORS.findall(code) for name in re.findall(r"\w+", names)}
    constants = _homes(codes, _CONSTANT, _INNER_CONSTANT, enumerators)
    reached = reach(codes)
    findings = []
    for path, text in codes.items():
        code = _OURS.sub("", text)
        seen = reached(path)
        known = set().union(*(_names(_DECLARED, codes[other]) for other in seen), _names(_FUNCTION, code))
        for homes, used in ((types, _USED_TYPE), (functions, _USED_FUNCTION), (constants, _USED_CONSTANT)):
            for name in sorted((set(used.findall(code)) & homes.keys()) - known):
                if homes[name] not in seen:
                    line = next(number for number, text in enumerate(code.splitlines(), 1) if re.search(rf"\b{name}\b", text))
                    findings.append(Finding(path, line, f"{name} is of {homes[name]}: include that"))
    return findings


def _names(pattern, code):
    """All that any group of the pattern has found."""
    found = pattern.findall(code)
    return {name for names in found for name in ((names,) if isinstance(names, str) else names) if name}


def _homes(codes, defined, members, others):
    """{name: the header that has it}, of those that no other file has in its place. A header's own .cc may have it, too."""
    found = {}
    taken = set(others).union(*(_names(members, code) for code in codes.values()))
    for path, code in codes.items():
        for name in _names(defined, code) - taken:
            found.setdefault(name, []).append(path)
    homes = {}
    for name, paths in found.items():
        headers = [path for path in paths if path.endswith(".h")]
        if len(headers) == 1 and set(paths) <= {headers[0], headers[0][:-2] + ".cc"}:
            homes[name] = headers[0]
    return homes


def reach(codes):
    """`codes`: {path: text}. A function: a file and all of these that it includes, at whatever distance."""
    public = {path.split("/include/", 1)[1]: path for path in codes if "/include/" in path}
    direct = {path: [public.get(name, name) for name in _INCLUDE.findall(code)] for path, code in codes.items()}

    def reached(path):
        seen, todo = set(), [path]
        while todo:
            name = todo.pop()
            if name not in seen and name in codes:
                seen.add(name)
                todo += direct[name]
        return seen
    return reached
