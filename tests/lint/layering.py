"""Which room may include what: the table "The rooms" of docs/ARCHITECTURE.md is the rule."""

import re

from tree import Finding

TABLE = "docs/ARCHITECTURE.md"
_FOLDERS = ("base", "rendezvous", "launcher", "tools", "worker", "examples")

_STD = {
    "algorithm", "any", "array", "atomic", "bit", "cerrno", "charconv", "chrono", "cinttypes", "climits", "cmath",
    "compare", "concepts", "condition_variable", "csignal", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring",
    "ctime", "deque", "exception", "filesystem", "forward_list", "fstream", "functional", "future", "initializer_list",
    "iomanip", "ios", "iosfwd", "iostream", "istream", "iterator", "limits", "list", "locale", "map", "memory", "mutex",
    "new", "numeric", "optional", "ostream", "queue", "random", "ranges", "ratio", "set", "shared_mutex", "span",
    "sstream", "stack", "stdexcept", "streambuf", "string", "string_view", "system_error", "thread", "tuple",
    "type_traits", "typeindex", "typeinfo", "unordered_map", "unordered_set", "utility", "valarray", "variant", "vector",
    "version",
}
# Standard headers that bring I/O, time, threads or randomness into a pure core.
_IMPURE_STD = {
    "chrono", "condition_variable", "cstdio", "ctime", "filesystem", "fstream", "future", "iostream", "mutex",
    "random", "shared_mutex", "thread", "atomic", "locale", "iomanip",
}
_PURE_BASE = {"base/status_macros.h", "base/check.h", "base/strong.h", "base/instant.h", "base/rng.h",
              "base/text.h", "base/instant.h", "base/text.h", "base/text.h", "base/tls_files.h",
              "base/version.h", "base/progress_page.h"}
_PURE_ABSL = ("absl/container/", "absl/strings/", "absl/status/", "absl/time/time.h", "absl/types/", "absl/functional/",
              "absl/algorithm/", "absl/base/", "absl/hash/")
# What others' pure cores may see of the service's: plain types, and their texts.
_SHARED_CORE = {f"rendezvous/core/{name}.h" for name in (
    "agent_message", "bounds", "describe", "hang_evidence", "identifiers", "job_spec", "node_info", "node_use",
    "service_message", "time_spent", "verdict", "worker_failure", "worker_progress")}

# What the table calls the outside world, and how its headers are told.
_OUTSIDE = {
    "gRPC": re.compile(r"^(grpc|grpcpp)/"),
    "LibTorch": re.compile(r"^(torch|ATen|c10|caffe2|gloo|nccl)[/.]"),
}
_PROTO = re.compile(r"^ddprun/(\w+)/.*\.pb\.h$|\.pb\.h$")
# Headers of ours in place of a library's, which are included by its paths.
_STAND_INS = "/gloo_stub/"
# The runtime's public headers are included by the path below include/.
_PUBLIC = "worker/include/"
_ANY_PUBLIC = "ddprun/*.h"
# One without a source is of the room that this source is in.
_SOURCE_OF = {"communication_hook": "distributed_data_parallel"}
_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]')
_ROW = re.compile(r"^\| `([\w/*]+)` \|.*\|([^|]*)\|$")


class Rooms:
    """The table: {room: names that it may include}, in its order. A room `x/*` is each folder of x.

    A public header belongs to the room of its source; without one, to its folder.
    """

    def __init__(self, tree):
        sources = {path.rsplit("/", 1)[1][:-3]: path.rsplit("/", 1)[0] for path in tree.paths(("worker",), (".cc",))}
        self._public = {}
        for path in tree.paths(("worker",), (".h",)):
            if path.startswith(_PUBLIC):
                folder, stem = path[:-2].rsplit("/", 1)
                self._public[path] = sources.get(_SOURCE_OF.get(stem, stem), folder)
        self.lines = {}
        self._allowed = {}
        for number, line in tree.lines(TABLE) if TABLE in tree else ():
            if self.lines and line.startswith("#"):
                break  # the tables of further sections are about other things
            row = _ROW.match(line)
            if row:
                self.lines[row.group(1)] = number
                self._allowed[row.group(1)] = re.findall(r"`([^`]+)`", row.group(2))

    def row_of(self, path):
        """The row of a file; None = it has none."""
        folder = self._public.get(path, path.rsplit("/", 1)[0])
        return next((name for name in (folder, folder.rsplit("/", 1)[0] + "/*") if name in self._allowed), None)

    def names_of(self, included):
        """What the table calls an included file: any of these allows it; [] = everybody may."""
        proto = _PROTO.search(included)
        if proto:
            return [f"proto:{proto.group(1)}"]
        outside = [name for name, pattern in _OUTSIDE.items() if pattern.search(included)]
        if _PUBLIC + included in self._public:
            return [self.row_of(_PUBLIC + included), _ANY_PUBLIC]
        if outside or included.split("/")[0] not in _FOLDERS:
            return outside
        return [self.row_of(included) or included.rsplit("/", 1)[0]]

    def allowed(self, room):
        return self._allowed[room]


def check(tree):
    """Includes that the table doesn't allow, folders without a row, rows that point upwards or at nothing."""
    rooms = Rooms(tree)
    if not rooms.lines:
        return [Finding(TABLE, 0, "has no table of rooms: the check is broken")]
    findings, used = [], set()
    for path in tree.paths(_FOLDERS, (".h", ".cc")):
        if _STAND_INS in path:
            continue
        room = rooms.row_of(path)
        if room is None:
            folder = path.rsplit("/", 1)[0]
            findings.append(Finding(path, 1, f"{folder} has no row in {TABLE}: say what it is and what it may include"))
            continue
        used.add((room, None))
        for number, line in tree.lines(path):
            match = _INCLUDE.match(line)
            if not match:
                continue
            why = _refusal(rooms, room, path, match.group(2), used)
            if why:
                findings.append(Finding(path, number, f"includes {match.group(2)}: {why}"))
    return findings + _check_table(rooms, used)


def _check_table(rooms, used):
    """A row may name only rows above it, so that there is no circle; and only what it uses."""
    findings, above = [], []
    for room, line in rooms.lines.items():
        above.append(room)
        if (room, None) not in used:
            findings.append(Finding(TABLE, line, f"there is no code in `{room}`"))
        for name in rooms.allowed(room):
            if name not in rooms.lines and name not in (*_OUTSIDE, _ANY_PUBLIC) and not name.startswith("proto:"):
                findings.append(Finding(TABLE, line, f"`{room}` may include `{name}`, which is no room"))
            elif name in rooms.lines and name not in above:
                findings.append(Finding(TABLE, line, f"`{room}` may include `{name}`, which stands below it: upwards, or "
                                                     "a circle"))
            elif _is_pure(room) and not _is_pure(name):
                findings.append(Finding(TABLE, line, f"`{room}` is pure, so it may not include `{name}`"))
            elif (room, name) not in used:
                findings.append(Finding(TABLE, line, f"`{room}` includes nothing of `{name}`: take it out"))
    return findings


def _is_pure(room):
    """A core, and a room in one."""
    return room.endswith("/core") or "/core/" in room


def _refusal(rooms, room, path, included, used):
    """Why `path` may not include it; None = it may. What was allowed is noted in `used`."""
    if included.startswith("tests/"):
        return "production code never includes tests"
    names = rooms.names_of(included)
    allowed = {room, "base", room + "/core", *rooms.allowed(room)}
    if names and not allowed.intersection(names):
        return f"{room} may include of these only base, {', '.join(rooms.allowed(room)) or 'nothing else'} ({TABLE})"
    used.update((room, name) for name in names)
    return _impure(path.rsplit("/", 1)[0], included, next(iter(names), "")) if _is_pure(room) else None


def _impure(folder, included, name):
    """Why a pure core may not include what its row allows. `name`: the room of it, "" = none."""
    if included in _STD:
        return "a pure core has no clock, thread, I/O or randomness" if included in _IMPURE_STD else None
    if included in _PURE_BASE or included.startswith(_PURE_ABSL):
        return None
    if (name + "/").startswith("rendezvous/core/") and not (folder + "/").startswith("rendezvous/core/"):
        return None if included in _SHARED_CORE else "others share only the plain types of rendezvous/core"
    if _is_pure(name):
        return None
    return ("a pure core may include only std, absl containers/strings/status/time, "
            "base/{status_macros,check,strong,instant,rng,text,tls_files,version}.h and other cores")
