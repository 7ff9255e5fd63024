"""Collectives in which some ranks (`mine`) are late by some seconds: all ranks call each function. Each is copied, as text, into
programs that odd_programs.py writes."""

import os
import threading
from time import monotonic, sleep

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def tensor(length=4):
    import torch
    return torch.ones(length)


def barrier_early(seconds, mine):
    """The others have finished their shards."""
    import torch.distributed as dist
    if mine:
        sleep(seconds)
    dist.barrier()


def barrier_monitored(seconds, mine):
    import datetime

    import torch.distributed as dist
    if mine:
        sleep(seconds)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=600))


def slow_for_a_while(seconds, mine):
    import torch.distributed as dist
    for _ in range(max(1, int(seconds / 3))):
        if mine:
            sleep(3)
        dist.all_reduce(tensor())


def subgroup_alone(seconds, mine):
    """Each late rank works in a group of its own, while the others wait in the default group."""
    import torch.distributed as dist
    groups = [dist.new_group([rank]) for rank in range(WORLD)]
    end = monotonic() + seconds
    while mine and monotonic() < end:
        dist.all_reduce(tensor(), group=groups[RANK])
        sleep(0.1)
    dist.barrier()


def groups_nested(seconds, mine):
    """The first two ranks meet, one of them late, before all do."""
    import torch.distributed as dist
    pair = dist.new_group([0, 1])
    if RANK < 2:
        if mine:
            sleep(seconds)
        dist.all_reduce(tensor(), group=pair)
    dist.all_reduce(tensor())


def groups_asynchronous(seconds, mine):
    """Ranks begin the collectives of two groups in different orders, and wait for both."""
    import torch.distributed as dist
    groups = [dist.new_group(), dist.new_group()]
    works = [dist.all_reduce(tensor(), group=groups[RANK % 2], async_op=True)]
    if mine:
        sleep(seconds)
    works.append(dist.all_reduce(tensor(), group=groups[1 - RANK % 2], async_op=True))
    for work in works:
        work.wait()


def groups_crossed_with_help(seconds, mine):
    """Ranks wait in different groups; threads of theirs begin what is missing later."""
    import torch.distributed as dist
    groups = [dist.new_group(), dist.new_group()]

    def help_later():
        sleep(seconds)
        dist.all_reduce(tensor(), group=groups[1 - RANK % 2])

    thread = threading.Thread(target=help_later)
    thread.start()
    dist.all_reduce(tensor(), group=groups[RANK % 2])
    thread.join()


def thread_with_group(seconds, mine):
    """A thread has a group of its own, in which some are late."""
    import torch.distributed as dist
    group = dist.new_group()

    def meet():
        if mine:
            sleep(seconds)
        dist.all_reduce(tensor(), group=group)

    thread = threading.Thread(target=meet)
    thread.start()
    for _ in range(3):
        dist.all_reduce(tensor())
    thread.join()


def asynchronous(seconds, mine):
    import torch.distributed as dist
    works = [dist.all_reduce(tensor(), async_op=True) for _ in range(3)]
    if mine:
        sleep(seconds)
    for work in works:
        work.wait()
    dist.all_reduce(tensor())


def lock_and_callback(seconds, mine):
    """A lock is released by what is to be done when a collective has ended, in a thread of torch's."""
    import torch.distributed as dist
    if mine:
        sleep(seconds)
    lock = threading.Lock()
    lock.acquire()
    work = dist.all_reduce(tensor(), async_op=True)
    work.get_future().add_done_callback(lambda _: lock.release())
    lock.acquire()


def time_out_caught(seconds, mine):
    """A group's own time-out is over; the program goes on in another."""
    import datetime

    import torch.distributed as dist
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if mine:
        sleep(seconds)
    try:
        dist.all_reduce(tensor(), group=group)
    except RuntimeError:
        pass


def point_to_point(seconds, mine):
    """From each rank to the next one."""
    import torch.distributed as dist
    if mine:
        sleep(seconds)
    sent = dist.isend(tensor(), (RANK + 1) % WORLD)
    dist.recv(tensor(), (RANK - 1) % WORLD)
    sent.wait()


def store_key(seconds, mine):
    import torch.distributed as dist
    store = dist.distributed_c10d._get_default_store()
    if mine:
        sleep(seconds)
    store.set(f"odd {RANK}", "")
    store.wait([f"odd {rank}" for rank in range(WORLD)])


def objects(seconds, mine):
    import torch.distributed as dist
    if mine:
        sleep(seconds)
    found = [None] * WORLD
    dist.all_gather_object(found, {"rank": RANK})


def inputs_uneven(seconds, mine):
    """More batches, and slow ones, on some ranks (torch.distributed.algorithms.Join)."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    with model.join():
        for _ in range(5 if mine else 2):
            if mine:
                sleep(seconds / 5)
            model(torch.ones(2, 4)).sum().backward()


SHARED = (barrier_early, barrier_monitored, slow_for_a_while, subgroup_alone, groups_nested, groups_asynchronous,
          groups_crossed_with_help, thread_with_group, asynchronous, lock_and_callback, time_out_caught,
          point_to_point, store_key, objects, inputs_uneven)
HELPERS = (tensor,)
