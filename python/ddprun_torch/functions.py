"""Functions as entry points: pickled here, called in new processes, results pickled back.

The same way as multiprocessing's "spawn" goes, with its own preparation data, so that a function of
the main script is found again.
"""

import multiprocessing.spawn
import os
import pickle
import sys

_TASK = "task.pickle"


def prepare(function, args, start_method, folder):
    """Writes the call into `folder`; returns the script of a worker, and its argument. Errors: ValueError with what to do instead."""
    main = sys.modules["__main__"]
    if function.__module__ == "__main__" and getattr(main, "__file__", None) is None and (
            getattr(main, "__spec__", None) is None):
        raise ValueError(
            f"ddprun starts workers as new processes, which can't find '{function.__qualname__}' of this interactive "
            "session (start method 'fork' would); put it into a module, or unset DDPRUN_SHIM")
    data = multiprocessing.spawn.get_preparation_data("ddprun worker")
    data["authkey"] = bytes(data["authkey"])  # refuses to be pickled as what it is
    try:
        task = pickle.dumps((function, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"ddprun starts workers as new processes; '{function.__qualname__}' or its arguments can't be sent there "
            f"({error}){'; fork is not possible' if start_method == 'fork' else ''}") from error
    with open(os.path.join(folder, _TASK), "wb") as sink:
        pickle.dump(data, sink)
        sink.write(task)
    return [os.path.abspath(__file__), folder]


def result(folder, local_rank):
    """The result of the worker of this local rank. Errors: RuntimeError: the worker has left none."""
    try:
        with open(_result_path(folder, local_rank), "rb") as source:
            return pickle.load(source)
    except OSError as error:
        raise RuntimeError(f"the worker of local rank {local_rank} ended well without a result: {error}") from error


def _result_path(folder, local_rank):
    return os.path.join(folder, f"result.{local_rank}.pickle")


def work(folder):
    """In the worker: calls the function."""
    with open(os.path.join(folder, _TASK), "rb") as source:
        multiprocessing.spawn.prepare(pickle.load(source))
        function, args = pickle.load(source)
    from torch.distributed.elastic.multiprocessing.errors import record

    value = record(function)(*args)
    path = _result_path(folder, os.environ["LOCAL_RANK"])
    with open(path + ".new", "wb") as sink:
        pickle.dump(value, sink)
    os.replace(path + ".new", path)


if __name__ == "__main__":
    work(sys.argv[1])
