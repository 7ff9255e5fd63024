"""Which folder may include what (docs/ARCHITECTURE.md, "Layers")."""

import re

from tree import Finding

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
              "base/signal_name.h", "base/text.h", "base/version.h", "base/progress_page.h"}
_PURE_ABSL = ("absl/container/", "absl/strings/", "absl/status/", "absl/time/time.h", "absl/types/", "absl/functional/",
              "absl/algorithm/", "absl/base/", "absl/hash/")
_SHARED_CORE = {"rendezvous/core/types.h", "rendezvous/core/message.h", "rendezvous/core/bounds.h",
                "rendezvous/core/time_spent.h"}
_TORCH = re.compile(r"^(torch|ATen|c10|caffe2|gloo|nccl)[/.]")
_GRPC = re.compile(r"^(grpc|grpcpp)/")
_PROTO = re.compile(r"\.pb\.h$")

# The first rule whose folder holds the file counts. Project folders that it may include, and of the
# outside world: "grpc", "proto", "torch".
_RULES = [
    ("base/", {"base/"}, set()),
    ("rendezvous/wire/", {"base/", "rendezvous/core/", "rendezvous/wire/"}, {"grpc", "proto"}),
    ("rendezvous/server/", {"base/", "rendezvous/"}, {"grpc", "proto"}),
    ("rendezvous/client/", {"base/", "rendezvous/core/", "rendezvous/wire/", "rendezvous/client/"}, {"grpc", "proto"}),
    ("rendezvous/web/", {"base/", "rendezvous/"}, {"grpc", "proto"}),
    ("launcher/os/", {"base/", "launcher/os/", "launcher/core/", "rendezvous/core/"}, set()),
    ("launcher/keeper/", {"base/", "launcher/os/", "launcher/keeper/"}, {"proto:keeper"}),
    ("launcher/", {"base/", "launcher/", "rendezvous/"}, {"grpc", "proto"}),
    ("worker/cuda/", {"base/", "worker/cuda/"}, set()),
    ("worker/metrics/", {"base/", "worker/metrics/"}, {"proto:tensorboard"}),
    ("worker/shm/", {"base/", "worker/shm/"}, set()),
    ("worker/env/", {"base/", "worker/env/"}, set()),
    ("worker/client/", {"base/", "worker/env/", "worker/client/"}, {"grpc", "proto:agent"}),
    ("worker/torch/errors/", {"base/", "worker/env/", "worker/torch/errors/"}, {"torch"}),
    ("worker/torch/store/", {"base/", "worker/client/", "worker/torch/errors/", "worker/torch/store/"}, {"torch"}),
    ("worker/torch/collectives/", {"base/", "worker/shm/", "worker/torch/errors/", "worker/torch/store/",
                                   "worker/torch/collectives/"}, {"torch"}),
    ("worker/torch/context/", {"base/", "worker/client/", "worker/env/", "worker/torch/errors/", "worker/torch/store/",
                               "worker/torch/collectives/", "worker/torch/context/"}, {"torch"}),
    ("worker/torch/data/", {"base/", "worker/torch/data/"}, {"torch"}),
    ("worker/torch/modules/", {"base/", "worker/torch/context/", "worker/torch/modules/"}, {"torch"}),
    ("worker/torch/optim/", {"base/", "worker/torch/optim/"}, {"torch"}),
    ("worker/torch/ddp/", {"base/", "worker/torch/errors/", "worker/torch/store/", "worker/torch/context/",
                           "worker/torch/modules/", "worker/torch/ddp/"}, {"torch"}),
    ("worker/torch/zero/", {"base/", "worker/torch/errors/", "worker/torch/store/", "worker/torch/collectives/",
                            "worker/torch/context/", "worker/torch/optim/", "worker/torch/zero/"}, {"torch"}),
    ("worker/torch/precision/", {"base/", "worker/torch/zero/", "worker/torch/precision/"}, {"torch"}),
    ("worker/torch/checkpoint/", {"base/", "worker/torch/errors/", "worker/torch/context/", "worker/torch/optim/",
                                  "worker/torch/zero/", "worker/torch/checkpoint/"}, {"torch"}),
    ("worker/torch/metrics/", {"base/", "worker/metrics/", "worker/torch/errors/", "worker/torch/context/",
                               "worker/torch/ddp/", "worker/torch/metrics/"}, {"torch"}),
    ("worker/", {"base/"}, {"torch"}),  # public headers that are no room's; a new room needs a row
    ("examples/", {"base/", "worker/", "examples/"}, {"torch"}),
]
_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def check(tree):
    """Includes that the layers don't allow."""
    findings = []
    public = _rooms_of_public_headers(tree)
    for path in tree.paths(("base", "rendezvous", "launcher", "worker", "examples"), (".h", ".cc")):
        for number, line in tree.lines(path):
            match = _INCLUDE.match(line)
            if not match:
                continue
            included = match.group(2)
            why = _refusal(public.get(path.removeprefix("worker/include/"), path), public.get(included, included))
            if why:
                findings.append(Finding(path, number, f"includes {included}: {why}"))
    return findings


def _rooms_of_public_headers(tree):
    """{"ddprun/group.h": "worker/torch/context/group.h"}: a public header belongs to the room of its source."""
    sources = (re.match(r"worker/torch/(\w+/(\w+))\.cc$", path) for path in tree.paths(("worker",), (".cc",)))
    rooms = {f"ddprun/{source[2]}.h": f"worker/torch/{source[1]}.h" for source in sources if source}
    return {"ddprun/communication_hook.h": "worker/torch/ddp/communication_hook.h", **rooms}  # has no source


def _refusal(path, included):
    if included.startswith("tests/"):
        return "production code never includes tests"
    if path.startswith(("rendezvous/core/", "launcher/core/")):
        return _refusal_in_core(path, included)
    folders, outside = next((f, o) for prefix, f, o in _RULES if path.startswith(prefix))
    top = included.split("/")[0] + "/"
    if top in ("base/", "rendezvous/", "launcher/", "worker/", "examples/", "bench/") and \
            not included.startswith(tuple(folders)):
        return f"{path.rsplit('/', 1)[0]} may include of ours only {', '.join(sorted(folders))}"
    if _GRPC.search(included) and "grpc" not in outside:
        return "no gRPC in this layer"
    if _PROTO.search(included) and not _proto_allowed(included, outside):
        return "no (or not these) generated protobuf headers in this layer"
    if _TORCH.search(included) and "torch" not in outside:
        return "only worker/torch and the examples see LibTorch"
    return None


def _proto_allowed(included, outside):
    return "proto" in outside or any(
        f"/{rule.split(':')[1]}/" in included for rule in outside if rule.startswith("proto:"))


def _refusal_in_core(path, included):
    own = path.rsplit("/", 1)[0] + "/"
    if included in _STD:
        return "a pure core has no clock, thread, I/O or randomness" if included in _IMPURE_STD else None
    if included.startswith(own) or included.startswith(_PURE_ABSL) or included in _PURE_BASE:
        return None
    if own == "launcher/core/" and included in _SHARED_CORE:
        return None
    return ("a pure core may include only std, absl containers/strings/status/time, base/{status_macros,check,strong,"
            "instant,rng,text,version}.h and its own folder")
