"""Runs as `sitecustomize` while the interpreter starts, so that what runs afterwards is Python's own: the script, its __main__,
its arguments, its tracebacks. docs/WARM.md says what it is for.

DDPRUN_WARM says what is wanted: "learn" has a worker write down, at its first optimizer step, what it has imported; a number
is the channel over which a parked interpreter is asked to become workers (launcher/keeper/parked_process.h). Lines of what
is learned, in the order in which things happened (launcher/warm/core/learned.h has the grammar):
  signature TEXT    what the installation was
  module NAME       was imported
  preload NAME      is to be imported in any case
  seen NAME         is there without having been imported by its name (torch.ops)
  set NAME=VALUE    the script set this variable; only between here and the end it was there
DDPRUN_WARM_IDLE says that workers train meanwhile: the imports get only processor time that nobody wants.
Standard parts only, and as few as can be: whatever is imported here is in every worker.
"""


def _roots():
    """Where the modules of the installation are, as opposed to the user's own."""
    import site
    import sysconfig
    roots = {os.path.realpath(path) for name, path in sysconfig.get_paths().items()
             if name in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots.update(os.path.realpath(path) for path in site.getsitepackages())
    roots.add(os.path.realpath(site.getusersitepackages()))
    # Folders that a .pth file or PYTHONPATH names: environments on top of others, a cluster's modules.
    roots.update(os.path.realpath(path) for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))
    return sorted(root for root in roots if os.path.isdir(root))


def _signature(roots):
    """Changes when something is installed, upgraded or removed: that touches the folder of the packages."""
    binary = os.stat(os.path.realpath(sys.executable))
    parts = [sys.version, sys.executable, str(binary.st_mtime_ns)]
    parts += ["%s:%d" % (root, os.stat(root).st_mtime_ns) for root in roots]
    return " ".join(" ".join(parts).split())


def _is_below(path, roots):
    return any(path.startswith(root + os.sep) for root in roots)


# ------------------------------------------------------------- in place of the user's own sitecustomize


def _find_jobs_hook():
    """A folder in front of the worker's PYTHONPATH that an interpreter of a daemon has not begun with (launcher/marks)."""
    first = os.environ.get("PYTHONPATH", "").partition(os.pathsep)[0]
    if first and os.path.abspath(first) not in sys.path:
        sys.path.insert(0, os.path.abspath(first))


def _run():
    mode = os.environ.pop("DDPRUN_WARM", "")
    path = os.environ.pop("DDPRUN_WARM_LEARNED", "")
    os.environ.pop("DDPRUN_WARM_ROOM", None)
    idle = os.environ.pop("DDPRUN_WARM_IDLE", "")
    python_path = os.environ.pop("DDPRUN_WARM_PYTHONPATH", None)
    if python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = python_path
    hook = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != hook]
    sys.path_importer_cache.pop(hook, None)
    if mode == "learn":
        _Diary(path)
    elif mode:
        file = os.path.join(hook, "parked.py")
        with open(file, "rb") as source:  # not in this one: to compile it takes a third of an interpreter's start
            exec(compile(source.read(), file, "exec"), globals())
        _Parked(int(mode), path, bool(idle)).become_workers()  # noqa: F821
        _find_jobs_hook()
    sys.modules.pop("sitecustomize", None)
    from importlib.machinery import PathFinder
    if PathFinder.find_spec("sitecustomize") is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    import sitecustomize  # the user's


import os
import sys

_run()
