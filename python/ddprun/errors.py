"""Error files as torch.distributed.elastic.multiprocessing.errors writes them, without torch."""

import faulthandler
import functools
import json
import os
import sys
import time
import traceback

_VARIABLE = "TORCHELASTIC_ERROR_FILE"


def record(function):
    """Decorates a worker's main function: an exception that leaves it is written where ddprun, like torchrun, finds it.

    So the failure report shows the stack and what to do about it, even if stderr is lost. Fatal signals print a Python
    stack to stderr. SystemExit isn't written; every exception is raised again.
    """

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        _watch_signals()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            write_error_file(error)
            raise

    return wrapper


def write_error_file(error):
    """Writes an exception with its stack into $TORCHELASTIC_ERROR_FILE; does nothing without one.

    An existing file is kept, because the first error is the cause. If the file can't be written, that is printed to stderr.
    """
    path = os.environ.get(_VARIABLE)
    if not path:
        return
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    data = {"message": {"message": f"{type(error).__name__}: {error}",
                        "extraInfo": {"py_callstack": stack, "timestamp": str(time.time_ns() // 10**9)}}}
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "x", encoding="utf-8") as sink:
            json.dump(data, sink)
    except FileExistsError:
        pass
    except (OSError, ValueError) as problem:
        print(f"ddprun: warning: the error file '{path}' was not written: {problem}", file=sys.stderr)


def _watch_signals():
    try:
        faulthandler.enable(all_threads=True)
    except (AttributeError, OSError, ValueError):
        pass  # stderr is no file
