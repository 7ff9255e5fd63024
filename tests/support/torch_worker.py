#!/usr/bin/env python3
"""A worker that uses torch.distributed; the rest is as in worker.py.

torch_worker.py JOURNAL join  [die-until=N | wait]   joins by init_process_group("gloo") and sums over all ranks,
                                                     writes its line, and then dies (rank 1) or waits
torch_worker.py JOURNAL join bare=A-B die-until=N    the same; restarts A to B do without torch, which takes seconds to
                                                     import: they only reach the store's port
torch_worker.py JOURNAL store                        tries every operation of the store; 2 ranks
torch_worker.py JOURNAL outlive                      rank 0 ends; the others use the store after SIGUSR1
"""

import datetime
import os
import signal
import socket
import sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})  # before torch has threads

from worker import write_line  # noqa: E402

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
RESTARTS = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def live_and_die_without_torch():
    """The last of two ranks dies as soon as the first has written its line."""
    socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 60).close()
    pipe = f"{sys.argv[1]}.{RESTARTS}"
    try:
        os.mkfifo(pipe)
    except FileExistsError:
        pass  # the other rank's
    write_line(sys.argv[1], "worker", rank=RANK, world=WORLD, restart_count=RESTARTS,
               generation=int(os.environ["DDPRUN_GENERATION"]), master_port=os.environ["MASTER_PORT"])
    os.open(pipe, os.O_RDONLY if RANK else os.O_WRONLY)  # waits for the other rank
    if RANK:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.sigwait({signal.SIGUSR1})


def is_bare():
    ranges = [argument.removeprefix("bare=").split("-") for argument in sys.argv if argument.startswith("bare=")]
    return any(int(first) <= RESTARTS <= int(last) for first, last in ranges)


if is_bare():
    live_and_die_without_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def seconds(number):
    return datetime.timedelta(seconds=number)


def report(**fields):
    write_line(sys.argv[1], "worker", rank=RANK, world=WORLD, restart_count=RESTARTS, torch=torch.__version__,
               generation=int(os.environ.get("DDPRUN_GENERATION", 0)), master_port=os.environ["MASTER_PORT"],
               agent_store=os.environ["TORCHELASTIC_USE_AGENT_STORE"], **fields)


def connect(is_master=None):
    """A client of the store, as LibTorch programs make theirs: rank 0 says that it is the server (check 51).

    Old versions of torch take that at its word also where the launcher serves the store.
    """
    if is_master is None:
        is_master = RANK == 0 and (VERSION >= (2, 11) or os.environ["TORCHELASTIC_USE_AGENT_STORE"] != "True")
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, is_master, seconds(60))


def same(expected, value):
    if expected != value:
        raise AssertionError(f"rank {RANK}: {value!r} instead of {expected!r}")


def raises(call):
    try:
        call()
    except (RuntimeError, ValueError):
        return
    raise AssertionError(f"rank {RANK}: no error")


def join():
    dist.init_process_group("gloo", timeout=seconds(60))
    total = torch.full((3,), float(RANK + 1))
    dist.all_reduce(total)
    same([WORLD * (WORLD + 1) / 2] * 3, total.tolist())
    dist.barrier()


def check_own(store):
    """What one client can see."""
    store.set("text", "value")
    same(b"value", store.get("text"))
    store.set("empty", "")
    same(b"", store.get("empty"))
    large = "x" * 1_000_000
    store.set("large", large)
    same(large.encode(), store.get("large"))
    same(5, store.add("number", 5))
    same(3, store.add("number", -2))
    same(b"3", store.get("number"))
    same(b"expected", store.compare_set("absent", "expected", "new"))
    same(b"first", store.compare_set("compared", "", "first"))
    same(b"first", store.compare_set("compared", "other", "second"))
    same(b"second", store.compare_set("compared", "first", "second"))
    same(b"second", store.get("compared"))
    before = store.num_keys()
    store.set("one more", "")
    same(before + 1, store.num_keys())
    store.wait(["text", "number"])
    prefixed = dist.PrefixStore("prefix", store)
    prefixed.set("text", "inner")
    same(b"inner", prefixed.get("text"))
    same(b"value", store.get("text"))
    if VERSION >= (2, 2):
        same(True, store.delete_key("one more"))
        same(False, store.delete_key("one more"))
        same(before + 1, store.num_keys())  # the prefixed one
        store.append("appended", "ab")
        store.append("appended", "c")
        same(b"abc", store.get("appended"))
    if hasattr(store, "check"):
        same(True, store.check(["text", "number"]))
        same(False, store.check(["text", "never"]))
    if hasattr(store, "multi_set"):
        store.multi_set(["m1", "m2"], ["one", "two"])
        same([b"two", b"one"], store.multi_get(["m2", "m1"]))
    if hasattr(store, "list_keys"):
        same(True, {"text", "number", "m1"} <= set(store.list_keys()))


def check_timeouts():
    """Clients time out by themselves; those before torch 2.1 leave the connection unusable, so each has its own."""
    store = connect(False)
    raises(lambda: store.wait(["never"], seconds(1)))
    if VERSION >= (2, 1):
        store.set("after", "the timeout")
        same(b"the timeout", store.get("after"))
        raises(lambda: store.wait(["after", "never"], seconds(1)))
        store.wait(["after"], seconds(60))
    store.set_timeout(seconds(1))
    raises(lambda: store.get("never"))


def check_queues(store):
    if RANK == 0:
        for text in ("one", "two", "three"):
            store.queue_push("queue", text)
        store.wait(["queue is read"])
        same(0, store.queue_len("queue"))
        raises(lambda: store.queue_pop("queue", False))
        store.set("push", "")
        same(b"answer", store.queue_pop("answers"))  # waits for it
    else:
        store.wait(["queue"])
        same([b"one", b"two", b"three"], [store.queue_pop("queue") for _ in range(3)])
        store.set("queue is read", "")
        store.wait(["push"])
        store.queue_push("answers", "answer")


def check_between(store):
    """What clients see of each other."""
    same(WORLD, int(store.add("arrived", 1)) if RANK else WORLD)  # rank 1 comes last
    if RANK == 0:
        store.set("from 0", "hello")
        same(b"hello too", store.get("from 1"))  # waits
    else:
        same(b"hello", store.get("from 0"))
        store.set("from 1", "hello too")
    if hasattr(store, "queue_push"):
        check_queues(store)
    if hasattr(store, "barrier"):
        for turn in range(3):
            store.barrier(f"barrier {turn}", WORLD, seconds(60))


def operations():
    store = connect()
    if RANK == 0:
        store.add("arrived", 1)
        check_own(store)
        check_timeouts()
        store.set("own is done", "")
    store.wait(["own is done"])
    check_between(store)
    # No rank takes the server away from the other.
    store.add("done", 1)
    if RANK == 0:
        store.set("0 is done", "")
        store.wait(["1 is done"])
    else:
        store.wait(["0 is done"])
        store.set("1 is done", "")
    report(operations="all")


def main():
    mode, *actions = sys.argv[2:]
    if mode == "store":
        operations()
    elif mode == "outlive":
        store = connect(False)
        store.set(f"rank {RANK}", str(RANK))
        report()
        if RANK == 0:
            return
        signal.sigwait({signal.SIGUSR1})
        same(b"0", store.get("rank 0"))
        other = connect(False)  # new ones too
        if other.add("survivors", 1) == WORLD - 1:
            other.set("all are here", "")
        store.wait(["all are here"])
    else:
        join()
        report(sum=WORLD * (WORLD + 1) / 2)
        for action in actions:
            name, _, value = action.partition("=")
            if name == "die-until" and RESTARTS < int(value):
                dist.barrier()  # all have written their lines
                if RANK == WORLD - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                signal.sigwait({signal.SIGUSR1})
            elif name == "wait":
                signal.sigwait({signal.SIGUSR1})
        dist.destroy_process_group()
        os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends


if __name__ == "__main__":
    main()
