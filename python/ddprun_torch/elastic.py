"""torch's launch_agent(), carried out by ddprun.

Imports torch only inside functions: their callers have imported it already.
"""

import codecs
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from ddprun_torch import functions
from ddprun_torch.program import find_ddprun, name_debugger

# torch's default for --master-port. On one node a free port serves better: two jobs don't collide.
_DEFAULT_MASTER_PORT = "29500"
_PUMP_PATIENCE = 5  # seconds
# Fields that LaunchConfig lacks in some torch from 2.4 on, with what later ones have in them unless their caller says more.
_LATER_FIELDS = {"signals_to_handle": "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "event_log_handler": "null", "numa_options": None,
                 "duplicate_stdout_filters": None, "duplicate_stderr_filters": None, "virtual_local_rank": False,
                 "shutdown_timeout": None}


def launch_agent(config, entrypoint, args, health_check_server=None):
    """Runs a job as torch.distributed.launcher.api.launch_agent does, from the same LaunchConfig.

    Returns: {global rank: result} of this node's workers; results are None unless `entrypoint` is a function.
    Errors: ChildFailedError with the workers that failed by themselves, first cause first; SignalException when this
    process got one of the signals to handle; RuntimeError for all else that ends a run (ddprun has said why on stderr);
    FileNotFoundError without ddprun; ValueError for what ddprun can't do (see docs/PYTHON.md).
    """
    name_debugger()
    if health_check_server is not None:
        raise ValueError(f"ddprun answers health checks itself (TORCHELASTIC_HEALTH_CHECK_PORT) and can't use a "
                         f"{type(health_check_server).__name__}; leave health_check_server out")
    folder = tempfile.mkdtemp(prefix="ddprun_torch_")
    try:
        name, command = _command(entrypoint, list(args), config, folder)
        report, events = os.path.join(folder, "report.json"), os.path.join(folder, "events.jsonl")
        arguments = [*options_of(config), "--report_file", report, "--event_log", events, *command]
        status, got = _run([find_ddprun(), *arguments], _environment(config, entrypoint),
                           _later_field(config, "signals_to_handle"))
        if got is not None:
            from torch.distributed.elastic.multiprocessing.api import SignalException

            raise SignalException(f"Process {os.getpid()} got signal: {int(got)}", got)
        if status != 0:
            _raise_failure(name, status, report)
        return _results(config, entrypoint, folder, events)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- options for ddprun

def _later_field(config, name):
    return getattr(config, name, _LATER_FIELDS[name])


def options_of(config):
    """ddprun's options for a LaunchConfig."""
    options = ["--nnodes", f"{config.min_nodes}:{config.max_nodes}", "--nproc_per_node", str(config.nproc_per_node),
               "--rdzv_id", str(config.run_id), "--max_restarts", str(config.max_restarts), "--role", config.role,
               "--signals_to_handle", _later_field(config, "signals_to_handle"),
               "--event_log_handler", _later_field(config, "event_log_handler")]
    options += _rendezvous_options(config)
    if config.local_addr:
        options += ["--local_addr", config.local_addr]
    if _later_field(config, "virtual_local_rank"):
        options += ["--virtual_local_rank"]
    for name in ("duplicate_stdout_filters", "duplicate_stderr_filters"):
        needles = _later_field(config, name)
        if needles:
            options += [f"--{name}", ",".join(needle.replace(",", ",,") for needle in needles)]
    shutdown_seconds = _later_field(config, "shutdown_timeout")
    if shutdown_seconds is not None:
        options += ["--shutdown_timeout", f"{shutdown_seconds}s"]
    numa = _later_field(config, "numa_options")
    if numa is not None:
        options += ["--numa_binding", numa.affinity_mode.value]
        if numa.should_fall_back_if_binding_fails:
            options += ["--binding_fallback"]
    return options + _log_options(config.logs_specs)


def _rendezvous_options(config):
    configs = {key: value for key, value in config.rdzv_configs.items() if value is not None}
    node_rank = configs.pop("rank", 0)
    if str(configs.get("timeout")) == "900":
        del configs["timeout"]  # torch's default, which ddprun has its own for
    options = ["--rdzv_backend", config.rdzv_backend]
    if config.rdzv_backend == "static":
        host, _, port = config.rdzv_endpoint.strip().rpartition(":")
        options += ["--master_addr", host or "127.0.0.1", "--node_rank", str(node_rank)]
        if config.max_nodes > 1 or port != _DEFAULT_MASTER_PORT:
            options += ["--master_port", port]
    elif config.rdzv_endpoint:
        options += ["--rdzv_endpoint", config.rdzv_endpoint]
    if configs:
        options += ["--rdzv_conf", ",".join(f"{key}={value}" for key, value in configs.items())]
    return options


def _streams(choice):
    """A Std, or a dict of them by local rank, in the words of --redirects."""
    if isinstance(choice, dict):
        return ",".join(f"{rank}:{int(std)}" for rank, std in sorted(choice.items())) or "0"
    return str(int(choice))


def _log_options(specs):
    if specs is None:
        return []
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs

    if type(specs) is not DefaultLogsSpecs:
        raise ValueError(f"ddprun writes logs itself and can't use {type(specs).__name__}; use DefaultLogsSpecs")
    options = ["--redirects", _streams(specs._redirects), "--tee", _streams(specs._tee)]
    if specs._local_ranks_filter:
        options += ["--local_ranks_filter", ",".join(str(rank) for rank in sorted(specs._local_ranks_filter))]
    folder = specs.root_log_dir
    made_by_torch = os.path.basename(folder).startswith("torchelastic_") and (
        os.path.dirname(folder) == tempfile.gettempdir())
    if made_by_torch:
        # torch makes a folder whenever none was asked for, and leaves it; ddprun makes one only when it needs it.
        try:
            os.rmdir(folder)
        except OSError:
            pass
    else:
        options += ["--log_dir", folder]
    return options


def _command(entrypoint, args, config, folder):
    """The job's name in reports, and the words for ddprun's command line behind the options."""
    if callable(entrypoint):
        # --run_path: as in torch, a worker that has finished waits for all workers of the node. Otherwise a process group that
        # lives until the process ends would break the groups of workers that are still running.
        if not _is_function(entrypoint):
            return "run_script_path", ["--run_path", *args]
        return entrypoint.__name__, ["--run_path", *functions.prepare(entrypoint, args, config.start_method, folder)]
    words = [str(arg) for arg in args]
    is_python = words[:1] == ["-u"] and entrypoint == os.environ.get("PYTHON_EXEC", sys.executable)
    if is_python and len(words) > 1:  # what torch makes of a script or a module, which ddprun then knows by name
        return words[2 if words[1] == "-m" else 1], words[1:]
    return entrypoint, ["--no_python", str(entrypoint), *words]


def _is_function(entrypoint):
    """Whether it is a function of the caller's; torch's own run_script_path stands for a script."""
    return callable(entrypoint) and getattr(entrypoint, "__name__", "") != "run_script_path"


def _environment(config, entrypoint):
    # torch has read the PET_ variables already, and made options of them.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    if _is_function(entrypoint):  # what was pickled here is read by the same Python
        environment["PYTHON_EXEC"] = sys.executable
    environment.setdefault("PYTHON_EXEC", sys.executable)
    if config.log_line_prefix_template:
        environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = config.log_line_prefix_template
    return environment


# ---------------------------------------------------------------- running it

def _dies_with_us():
    """For the child, before exec: when this launcher is killed, the kernel kills ddprun, which ends its workers."""
    import ctypes

    libc = ctypes.CDLL(None)
    pr_set_pdeathsig = 1
    return lambda: libc.prctl(pr_set_pdeathsig, signal.SIGTERM, 0, 0, 0)


def _run(command, environment, signals_to_handle):
    """ddprun's exit status, and the handled signal that this process got meanwhile, if any.

    ddprun gets a session of its own, so that a Ctrl-C of the terminal reaches it only once, through this process.
    """
    handled = []
    for name in signals_to_handle.split(","):
        number = getattr(signal, name.strip(), None)
        if number is not None:
            handled.append(number)
    process = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=_dies_with_us(),
                               stdout=_passed_through(sys.stdout, 1), stderr=_passed_through(sys.stderr, 2))
    pumps = [_pump(pipe, stream) for pipe, stream in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)) if pipe]
    got = []

    def forward(number, _frame):
        if number in handled:
            got.append(signal.Signals(number))
        process.send_signal(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in {*handled, signal.SIGUSR1, signal.SIGUSR2}:
            before[number] = signal.signal(number, forward)
    try:
        status = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        for pump in pumps:
            pump.join(_PUMP_PATIENCE)  # what a daemon of a worker's holds open may never end
        for number, handler in before.items():
            signal.signal(number, handler)
    return status, (got[0] if got else None)


def _passed_through(stream, descriptor):
    """For Popen: a pipe if the caller has replaced the process' stream, else the descriptor itself."""
    try:
        own = stream is None or stream.fileno() == descriptor
    except (AttributeError, OSError, ValueError):
        own = False
    return None if own else subprocess.PIPE


def _pump(pipe, stream):
    """A thread that writes what comes out of the pipe to a text stream, as it comes, until the pipe's end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def run():
        taken = True
        with pipe:
            while True:
                chunk = pipe.read1(65536)
                try:
                    if taken:
                        stream.write(decoder.decode(chunk, final=not chunk))
                        stream.flush()
                except Exception:  # the caller's stream is closed, or fails: the job goes on
                    taken = False
                if not chunk:
                    return

    thread = threading.Thread(target=run, name="ddprun output", daemon=True)
    thread.start()
    return thread


def _raise_failure(name, status, report_path):
    """Raises the exception that torch's callers expect of a failed job."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    failures = read_failures(report_path)
    if failures:
        raise ChildFailedError(name=name, failures=failures)
    raise RuntimeError(f"ddprun ended with status {status} and no worker to blame; its own words on stderr say why")


def read_failures(report_path):
    """{global rank: ProcessFailure} of a report of ddprun, first cause first; {} without one."""
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    try:
        with open(report_path, encoding="utf-8") as source:
            report = json.load(source)
    except (OSError, ValueError):
        return {}
    failures = {}
    for failure in (*report["root_causes"], *report["other_failures"]):
        # A signal is negative in torch; a worker that could not be started has neither.
        exitcode = -failure["signal"] if failure["signal"] else failure["exit_code"] or 1
        made = ProcessFailure(local_rank=failure["local_rank"], pid=failure["pid"], exitcode=exitcode,
                              error_file=failure["error_file"] or "<N/A>")
        words = failure["message"] or failure["start_error"]
        if words:
            made.message = {"message": words, "extraInfo": {"py_callstack": failure["traceback"] or words}}
            made.error_file_data = {"message": made.message}
        # torch takes the earliest for the root cause; ddprun has ordered them by evidence.
        first = next(iter(failures.values()), made)
        made.timestamp = max(failure["time_ms"] // 1000, first.timestamp if failures else 0)
        failures.setdefault(failure["rank"], made)
    return failures


def _results(config, entrypoint, folder, events_path):
    base = 0
    with open(events_path, encoding="utf-8") as source:
        for line in source:
            event = json.loads(line)
            if event["event"] == "assignment":
                base = int(event["rank"])
    return {base + local_rank: functions.result(folder, local_rank) if _is_function(entrypoint) else None
            for local_rank in range(config.nproc_per_node)}
