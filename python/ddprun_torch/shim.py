"""Puts ddprun where torch has its own launcher.

`python3 -m torch.distributed.run` becomes ddprun by exec, before torch is imported: that saves two seconds, and no process stands
between a scheduler's signals and ddprun. All other ways meet in launch_agent(), which gets a LaunchConfig that torch's own parser
has made, so options need no second reading. A package of torch's name earlier on the path would break with each torch, and
LocalElasticAgent's rendezvous objects would have to be faked. If ddprun can't take over, that is an error: a silent fallback to
torchrun would hide it.
"""

import importlib.abc
import importlib.util
import os
import sys

_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
# All ways in Python to torchrun's agent meet in this module's launch_agent().
_API = "torch.distributed.launcher.api"
# Options of the interpreter that take the next argument.
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def install():
    """From now on this interpreter launches with ddprun. Calling it again changes nothing.

    - If it was started as `python3 -m torch.distributed.run …` (or `.launch`), it becomes ddprun at once,
      before torch is imported.
    - Otherwise torch.distributed.launcher.api.launch_agent is replaced when that module is imported
      (now, if it has been): elastic_launch(), torch.distributed.run.run() and main(), and what is built
      on them (accelerate, …), use it.
    """
    launcher, arguments = launcher_of(_command_line())
    if launcher is not None:
        from ddprun_torch.program import become_ddprun

        become_ddprun(arguments)
    if _API in sys.modules:
        _replace(sys.modules[_API])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _command_line():
    """What this interpreter was started with: sys.orig_argv, which Python 3.8 and 3.9 lack."""
    if hasattr(sys, "orig_argv"):
        return sys.orig_argv
    with open("/proc/self/cmdline", "rb") as source:
        return [os.fsdecode(word) for word in source.read().split(b"\0")[:-1]]


def launcher_of(words):
    """What ddprun gets when `words` is the command line of a launcher: (its module, arguments); else (None, [])."""
    position = 1
    while position < len(words):
        word = words[position]
        if word == "-m" and position + 1 < len(words):
            module, arguments = words[position + 1], list(words[position + 2:])
            if module not in _LAUNCHERS:
                break
            if module == "torch.distributed.launch":
                arguments = launch_arguments(arguments, os.environ)
            return module, arguments
        if word in _OPTIONS_WITH_VALUE:
            position += 1
        elif not word.startswith("-") or word in ("-", "-c"):
            break
        position += 1
    return None, []


def launch_arguments(arguments, environment):
    """torch.distributed.launch passes --local-rank to the script unless it gets --use-env; torchrun doesn't by default."""
    if any(word in ("--use-env", "--use_env") for word in arguments):
        return arguments
    environment["PET_USE_ENV"] = "0"
    return arguments


def _replace(module):
    from ddprun_torch.elastic import launch_agent

    if not hasattr(module, "launch_agent"):
        raise ImportError(f"ddprun_torch: this torch has no {_API}.launch_agent to replace; unset DDPRUN_SHIM")
    module.launch_agent = launch_agent


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module as always, and replaces the function after the module has run."""

    def find_spec(self, name, path=None, target=None):
        if name != _API:
            return None
        sys.meta_path.remove(self)  # once is enough, and the search below must not meet us
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _replace(module)

    def __getattr__(self, name):  # get_code, get_source, … as the real one
        return getattr(self._loader, name)
