"""Draws ordinary launches from a seed: those that torchrun's users type, where a researcher's or a cluster's shell has been."""

import random

from launch import AROUND, FROM_STDIN, MERGED, ODD_ARGUMENTS, PLAIN, PROGRAMS, SPELLINGS, Launch

_RENDEZVOUS = ("none", "standalone", "static", "static", "c10d", "c10d", "c10d", "etcd")
_ADDRESSES = ("localhost", "127.0.0.1", "127.0.1.1", "127.0.0.2", "::1", "lan4", "lan6", "hostname", "domain", "translated",
              "")
_DEEDS = ("well", "well", "well", "exit", "exit", "raise", "signal", "text", "os_exit", "once", "once", "apart", "segment",
          "tidier", "straggler", "upload", "speed", "pieces", "fork", "no_end", "bytes", "records", "deaf", "execs", "closes",
          "kills_group", "pool", "thread", "stops", "segment", "tidier", "upload")
_OPTIONS = (
    ["role", "trainer"], ["rdzv_id", "job-7"], ["rdzv_id", "a/b c"], ["monitor_interval", "0.05"], ["start_method", "fork"],
    ["event_log_handler", "console"], ["signals_to_handle", "SIGTERM,SIGINT"], ["virtual_local_rank", True],
    ["local_ranks_filter", "0"], ["log_dir", "logs"], ["log_dir", "my logs/deep"], ["log_dir", "/dev/null"], ["redirects", "1"],
    ["redirects", "3"], ["redirects", "0:1"], ["tee", "1"], ["tee", "2"], ["tee", "3"], ["tee", "3"], ["tee", "0:3"],
    ["duplicate_stdout_filters", "L~ 0,x"], ["duplicate_stderr_filters", "L~ 0 1"],
)
# Signals that kill a worker by default.
_SIGNALS = (1, 2, 3, 6, 9, 10, 11, 13, 14, 15)
# Programs that run without PATH.
_WITHOUT_PATH = ("script", "absolute", "blanks", "dots", "link", "no_suffix", "accents", "returns", "mark", "folder", "module",
                 "package", "package_main", "run_path", "odd_name", "text", "uv", "latin", "empty_lines")


def draw(seed, beside=False):
    """The launch of a seed. `beside`: only launches that both launchers must take alike."""
    rng = random.Random(f"launch {seed}")
    fields = {"rendezvous": rng.choice(_RENDEZVOUS), "nproc": rng.choice((1, 1, 2, 2, 3)), "host_is": rng.choice(
        ("lan4", "lan4", "debian", "lan6", "both", "loopback", "nothing"))}
    if rng.random() < 0.35:
        fields["agents"] = 2
        fields["nproc_second"] = rng.choice((0, 0, 1, 2))
    fields["nnodes"] = rng.choice(("", "1", "1:1", "1:2")) if fields.get("agents", 1) == 1 else rng.choice(("2", "2:2", "1:2"))
    fields["address"] = rng.choice(_ADDRESSES)
    fields["port"] = rng.choice(("given", "given", "default", "zero"))
    fields["by"] = rng.choice(("master", "master", "endpoint"))
    fields["is_host"] = rng.random() < 0.15
    if rng.random() < 0.15:
        fields["local_addr"] = rng.choice(("lan4", "127.0.0.1", "localhost", "lan6", "hostname"))
    fields["program"] = rng.choice(("script", "script", *sorted(PROGRAMS)))
    if rng.random() < 0.4:
        fields["arguments"] = [rng.choice(ODD_ARGUMENTS) for _ in range(rng.randrange(1, 6))]
    options = {}
    for _ in range(rng.choice((0, 0, 1, 2, 3, 5))):
        name, value = rng.choice(_OPTIONS)
        options.setdefault(name, value)
    fields["options"] = [[name, value] for name, value in options.items()]
    fields["around"] = rng.sample(sorted(AROUND), rng.choice((0, 0, 1, 1, 2, 3, 4)))
    fields["deed"] = rng.choice(_DEEDS)
    fields["doer"] = rng.choice((-1, 0, 1, 2))
    fields["others"] = rng.choice(("end", "linger"))
    fields["restarts"] = rng.choice((0, 0, 0, 1, 2, 4))
    fields["amount"] = _amount(rng, fields["deed"])
    fields["lines"] = {"speed": 3000, "fork": 5}.get(fields["deed"], rng.choice((0, 1, 3, 3, 40)))
    named = ["nnodes", "nproc_per_node", "standalone", "node_rank", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint",
             "rdzv_conf", "local_addr", "max_restarts", "module", "no_python", "run_path", *options]
    if rng.random() < 0.6:
        fields["spelled"] = {name: rng.choice(SPELLINGS) for name in named}
    return mended(Launch(**fields), beside)


def _amount(rng, deed):
    amounts = {"exit": (0, 1, 2, 3, 77, 93, 255, 256, -1), "os_exit": (0, 1, 5), "execs": (0, 3), "signal": _SIGNALS,
               "segment": (0, 0, 9), "once": (1, 1, 2, 4), "tidier": (0, 20, 150, 1000), "upload": (0, 100, 300),
               "pool": (0, 1, 2),
               "thread": (0, 200), "stops": (20, 200)}
    return rng.choice(amounts.get(deed, (0,)))


def mended(launch, beside=False):
    """The launch without contradictions; a launch that has none is returned unchanged."""
    new = launch.changed()
    for _ in range(2):  # what one changes may be another's concern
        if beside:
            _mend_for_both(new)
        _mend_rendezvous(new)
        _mend_program(new)
        _mend_deed(new)
    said = {name for name, _ in new.options_of(0, {"job": 1, "etcd": "e"})} | {
        name for name, _ in new.options_of(1, {"job": 1, "etcd": "e"})}
    new.spelled = {name: how for name, how in new.spelled.items()
                   if (name in said or name == "nproc_per_node") and not (how == "file" and name in ("use_env",))}
    return new


def _mend_rendezvous(new):
    if new.rendezvous in ("none", "standalone"):
        new.agents = 1
        new.address, new.local_addr, new.is_host, new.by = "", "", False, "master"
    new.nproc_second = new.nproc_second if new.agents == 2 else 0
    new.nproc_second = 0 if new.nproc_second == new.nproc else new.nproc_second
    if new.agents == 2 and new.nnodes not in ("2", "2:2", "1:2"):
        new.nnodes = "2"
    elastic = new.rendezvous in ("c10d", "etcd")
    if new.agents == 1 and (new.nnodes in ("2", "2:2") or new.nnodes == "1:2" and not elastic):
        new.nnodes = ""
    if new.rendezvous == "static":
        new.local_addr, new.is_host = "", False  # ignored there
        new.by = "master" if not new.address else new.by
        new.port = "given" if new.by == "endpoint" or new.port == "zero" else new.port
        new.nnodes = "2" if new.nnodes == "1:2" else new.nnodes
    if new.rendezvous in ("c10d", "etcd"):
        new.by = "master"
        new.port = "default" if not new.address or new.port == "zero" and new.agents == 2 else new.port
        if new.address == "translated":
            new.is_host = True  # a translated address is nobody's own
    if new.rendezvous in ("none", "standalone"):
        new.port = "given"
    if new.rendezvous == "etcd":
        new.address, new.port, new.is_host = "", "given", False
    if new.host_is == "nothing":
        for field in ("address", "local_addr"):
            if getattr(new, field) in ("hostname", "domain"):
                setattr(new, field, "lan4")
    if "slurm_batch_of_two" in new.around and new.rendezvous in ("none", "etcd") and new.nnodes != "1":
        new.nnodes = "1" if new.agents == 1 else new.nnodes
    if new.agents == 2 and {"slurm_step", "slurm_batch"} & set(new.around):
        new.around = [name for name in new.around if name not in ("slurm_step", "slurm_batch")]


def _mend_program(new):
    around = [name for name in new.around if not (name.startswith("slurm") and name != next(
        each for each in new.around if each.startswith("slurm")))]
    if new.program in FROM_STDIN:
        new.nproc, new.nproc_second, new.agents = 1, 0, 1 if new.rendezvous in ("none", "standalone") else new.agents
        new.nnodes = "" if new.agents == 1 and new.nnodes.startswith("2") else new.nnodes
        around = [name for name in around if name != "no_input"]
        new.restarts = 0  # what has been read is gone
        around = [name for name in around if name not in ("background", "terminal")]
        new.deed = "well" if new.deed in ("once", "pool") else new.deed
    if new.program == "above" and new.agents == 2:
        new.program = "dots"
    if "no_path" in around:
        new.program = new.program if new.program in _WITHOUT_PATH else "script"
        around = [name for name in around if name not in ("by_name", "nice", "session", "one_processor", "timeout", "nohup",
                                                          "background", "piped", "one_pipe", "terminal")]
    if "gone" in around:
        around = [name for name in around if name not in ("linked_folder", "relative_tmp")]
    if "linked_folder" in around:
        around = [name for name in around if name != "relative_tmp"]
    one = [name for name in around if name in ("terminal", "one_pipe", "one_file", "piped", "no_output", "no_error")]
    around = [name for name in around if name not in one[1:]]
    if "terminal" in around:
        around = [name for name in around if name not in ("no_input", "background", "nohup")]
    if "by_link" in around:
        around = [name for name in around if name != "by_name"]
    if {"gone", "safe_path"} & set(around) and new.program in ("module", "package", "package_main"):
        around = [name for name in around if name != "safe_path"]
    if _said(new, "virtual_local_rank"):
        around = [name for name in around if name != "no_gpus"]  # no device for each of several workers
    new.around = around
    relative = [["log_dir", value] for name, value in new.options if name == "log_dir" and not value.startswith("/")]
    if "gone" in around and relative:
        new.options = [option for option in new.options if option not in relative]
    if new.program in FROM_STDIN:
        new.spelled = {name: how for name, how in new.spelled.items() if how != "file"}


def _mend_deed(new):
    new.doer = new.doer if new.doer == -1 else new.doer % new.world
    if new.deed == "pool" and {"gone", "long_tmp"} & set(new.around):
        new.amount = 0  # others look for the folder, or have a socket in TMPDIR
    if new.deed == "no_end" and _said(new, "event_log_handler") == "console":
        new.deed, new.amount = "well", 0  # a line of the launcher's follows
    if new.deed == "once" and not new.restarts:
        new.restarts = 1
    if new.fails and new.others == "linger" and new.doer == -1:
        new.others = "end"
    if not new.fails:
        new.others = "end"
    # Another text follows on the same line: another worker's, or the worker's own of the other stream.
    is_whole_lines = _said(new, "tee") == "3" and _said(new, "log_dir") != "/dev/null"
    if new.deed == "no_end" and (new.world > 1 or set(MERGED) & set(new.around)) and not is_whole_lines:
        new.deed, new.amount = "well", 0
    if new.deed == "pieces" and new.world > 1 and not is_whole_lines:
        new.deed = "well"
    if new.deed == "kills_group" and new.program == "shell_waits":
        new.deed = "well"  # the shell is of the group, and has no handler
    if new.deed in ("pieces", "no_end", "speed", "fork", "bytes") and not new.lines:
        new.lines = 3
    if new.deed in ("once", "well") or not new.fails:
        new.restarts = new.restarts if new.deed == "once" else min(new.restarts, 1)
    if new.fails:
        new.restarts = min(new.restarts, 2)  # the pauses between starts grow
    if new.deed == PLAIN["deed"]:
        new.amount = 0


def _mend_for_both(new):
    """Takes out what torchrun can't do, or what ddprun does differently on purpose."""
    if new.rendezvous == "etcd":
        new.rendezvous, new.address, new.port = "c10d", "127.0.0.1", "given"
    if new.agents == 2:  # pains 5, 50, 85: a node without a failure of its own waits for five minutes
        new.deed = "exit" if new.deed == "once" else new.deed
        new.restarts, new.others, new.doer = 0, "end", -1
        new.nproc_second = new.nproc_second if new.rendezvous == "static" else 0  # which agent is the first is open
    new.deed = {"deaf": "exit", "straggler": "well"}.get(new.deed, new.deed)  # --grace and --leftovers are ours
    new.options = [[name, "job-7" if name == "rdzv_id" else value] for name, value in new.options]
    if _said(new, "log_dir") == "/dev/null":
        new.options = [[name, value] for name, value in new.options if "filter" not in name]
    if new.host_is == "nothing":
        new.host_is = "lan4"  # torchrun's MASTER_ADDR is the host's name
    new.around = [name for name in new.around if name != "gone"]  # it doesn't start there
    own_name = {"lan4": ("lan4", "both"), "lan6": ("lan6", "both")}.get(new.address, ())
    if new.rendezvous == "c10d" and new.address in ("lan4", "lan6") and new.host_is not in own_name:
        new.address = "hostname"  # pain 24: it doesn't know the address as its own


def _said(launch, name):
    return dict(map(tuple, launch.options)).get(name)
