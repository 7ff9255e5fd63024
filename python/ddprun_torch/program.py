"""Finds the ddprun program, and replaces this process by it."""

import os
import shutil
import sys
import sysconfig


def find_ddprun():
    """The path of ddprun: $DDPRUN_BIN, else this environment's, else the one in PATH. Errors: FileNotFoundError that says so."""
    given = os.environ.get("DDPRUN_BIN")
    if given:
        if os.access(given, os.X_OK):
            return given
        raise FileNotFoundError(f"DDPRUN_BIN '{given}' is no program that can be run")
    # The environment may not be activated: its interpreter alone was named.
    found = shutil.which("ddprun", path=sysconfig.get_path("scripts")) or shutil.which("ddprun")
    if found is None:
        raise FileNotFoundError("there is no ddprun in PATH; put it there, or set DDPRUN_BIN to its path")
    return found


def name_debugger():
    """Prints to stderr how to debug workers, if pydevd (debugpy, PyCharm) debugs this process.

    pydevd follows Python processes that Python starts; ddprun is another program, so its workers are without pydevd.
    """
    if "pydevd" in sys.modules:
        print("ddprun_torch: the debugger of this process isn't in the workers. To debug them: ddprun --nproc_per_node N -m debugpy "
              "--listen '127.0.0.1:567${local_rank}' --wait-for-client train.py, then attach to port 5670 for local rank 0, 5671 "
              "for 1, … (docs/PYTHON.md#debuggers)", file=sys.stderr, flush=True)


def become_ddprun(arguments):
    """Replaces this process by `ddprun arguments…`, so that signals and the exit status are ddprun's own.

    Workers run with this interpreter unless PYTHON_EXEC names another one. Ends with status 1 and one
    line on stderr when there is no ddprun.
    """
    environment = dict(os.environ)
    environment.setdefault("PYTHON_EXEC", sys.executable)
    try:
        program = find_ddprun()
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(program, [program, *arguments], environment)
    except OSError as error:
        print(f"ddprun_torch: error: {error}", file=sys.stderr)
        sys.exit(1)
