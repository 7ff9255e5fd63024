"""Finds the suites for a change: scripts/test --changed.

A room's own tests are in tests/unit under the room's path; a row of _ROOMS names the other suites that use the room. A path
without a row gets every suite that takes seconds.
"""

import subprocess

# By path prefix, the suites, and parts of them: "unit/…" is a folder of tests/, "e2e/…", "sim/…" one test. The longest prefix
# counts.
_ROOMS = {
    "base/": ["unit", "process", "server"],
    "proto/": ["unit/rendezvous", "server"],
    "rendezvous/core/": ["unit/rendezvous/core", "datadriven", "sim/cluster_sim_test"],
    "rendezvous/": ["unit/rendezvous", "server"],
    "rendezvous/server/core/": ["server"],
    "rendezvous/etcd/": ["unit/rendezvous", "fuzz", "e2e/etcd"],
    "launcher/core/": ["unit/launcher/core", "sim/cluster_sim_test"],
    "launcher/": ["e2e", "launches"],
    "launcher/keeper/": ["unit/launcher/keeper", "process"],
    "launcher/os/": ["unit/launcher/os", "process"],
    "launcher/stores/": ["unit/launcher/stores", "server", "launches"],
    "launcher/stores/core/": ["server"],
    "launcher/advice/": ["unit/launcher/advice"],
    "tools/": ["e2e", "launches"],
    "tools/chaos/core/": ["unit/tools/chaos"],
    "tools/doctor/core/": ["unit/tools/doctor"],
    "tools/preflight/core/": ["unit/tools/preflight"],
    "launcher/plan/": ["unit/launcher/plan", "unit/launcher/cli", "launches"],
    "launcher/options/": ["unit/launcher"],
    "tools/config/": ["unit/tools/config"],
    "launcher/agent/": ["server", "e2e"],
    "launcher/logs/": ["server", "e2e/logs", "e2e/job_logs"],
    "launcher/logs/core/": ["unit/launcher/logs"],
    "launcher/machine/": ["unit/launcher/machine", "process"],
    "launcher/output/": ["unit/launcher/output", "process", "e2e/console", "e2e/output"],
    "launcher/service/": ["process", "e2e"],
    "launcher/service/core/": ["unit/launcher/service", "sim/cluster_sim_test"],
    "launcher/side_channels/": ["unit/launcher/side_channels", "e2e/side_channels"],
    "launcher/side_channels/core/": ["unit/launcher/side_channels"],
    "worker/": ["worker"],
    "worker/data/": ["unit/worker/data", "sim/sampler_histories_test", "packaging", "worker"],
    "worker/shm/": ["unit/worker/shm", "worker"],
    "worker/metrics/": ["unit/worker/metrics", "worker"],
    "examples/": ["worker"],
    "python/": ["python", "packaging"],
    "python/ddprun/data.py": ["packaging", "e2e/data"],
    "deploy/": ["docs"],
    "docker/": ["docs"],
    "docs/": ["docs"],
    "docs/decisions/": [],
    "README.md": ["docs"],
    "CHANGELOG.md": [],
    "scripts/": [],
    "scripts/release": ["packaging/release"],
    "scripts/lib/release": ["packaging/release"],
    "scripts/lib/proto_fields.py": ["packaging/release"],
    "scripts/lib/sbom.py": ["packaging/release"],
    "bench/": [],
    "tests/lint/": [],
    "tests/support/": ["e2e", "cluster"],
    "CMakeLists.txt": ["build"],
    "cmake/": ["build"],
}
# Folders of tests that are suites of the same name.
_FOLDERS = ("datadriven", "sim", "fuzz", "process", "server", "worker", "gpu", "e2e", "contract", "launches", "cluster", "slurm",
            "python", "packaging", "docs", "mutants", "spin")
# Checks of lint that read only a few files, with the places of these.
_NARROW_LINTS = {
    "lint_selftest": lambda path: path.startswith("tests/lint/"),
    "lint_runner_selftest": lambda path: path.startswith(("tests/lint/", "scripts/lib/")),
    "lint_shell": lambda path: path.endswith(".sh") or "." not in path.rsplit("/", 1)[-1],
}
_OTHERWISE = ["unit", "datadriven", "sim", "process", "server"]


def changed_paths(root, commit):
    """The files of the working tree that differ from `commit`, new ones included; relative to the root."""
    paths = []
    for command in (["git", "diff", "--name-only", commit, "--"], ["git", "ls-files", "--others", "--exclude-standard"]):
        paths += subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(set(paths))


def seen_by(path):
    """The suites, and parts of them, for a change of this file."""
    parts = path.split("/")
    if parts[0] == "tests" and len(parts) > 2:
        if parts[1] == "unit":
            return ["/".join(parts[1:-1])]
        if parts[1] in _FOLDERS:
            return [parts[1]]
    rows = [prefix for prefix in _ROOMS if path.startswith(prefix)]
    if not rows:
        return _OTHERWISE
    found = list(_ROOMS[max(rows, key=len)])
    if parts[0] in ("launcher", "rendezvous", "tools", "worker") and len(parts) > 2:
        folder = parts[:-1]
        if "core" in folder:  # the rooms in a core have its tests
            folder = folder[:folder.index("core") + 1]
        found.append("unit/" + "/".join(folder))
    return list(dict.fromkeys(found))


def suites_of(paths):
    """(suites in order of first use, {suite: its parts}); a suite without parts runs as a whole."""
    seen = [item for path in paths for item in seen_by(path)]
    suites = list(dict.fromkeys(item.split("/")[0] for item in seen))
    parts = {suite: sorted({item for item in seen if item.startswith(suite + "/")}) for suite in suites if suite not in seen}
    return [*suites, "lint"], parts


def unchanged_lints(paths):
    """The checks that read none of these files."""
    return {name for name, sees in _NARROW_LINTS.items() if not any(map(sees, paths))}


def changed_suites(root, commit):
    return suites_of(changed_paths(root, commit))
