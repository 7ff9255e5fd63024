"""Real hangs of programs that odd_programs.py writes, each copied there as text. Those of ENDLESS could go on, as far as a
launcher can know; those of PROVABLE can't. All ranks call a function with `mine`, in which each of them waits."""

import os
import socket
import subprocess
import sys
import threading
from time import sleep

from odd_collectives import tensor
from odd_deeds import fresh, outside

FOREVER = 100000  # seconds

# ---------------------------------------------------------------- these could go on


def sleeps_forever(seconds):
    sleep(FOREVER)


def child_never_ends(seconds):
    subprocess.run(["sleep", str(FOREVER)], check=True)


def child_process_never_ends(seconds):
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=sleep, args=(FOREVER,))
    child.start()
    child.join()


def server_never_answers(seconds):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outside("import socket\ns = socket.socket(fileno=int(sys.argv[1]))\nc, _ = s.accept()\nsleep(600)\n",
                listener.fileno(), fds=[listener.fileno()])
        socket.create_connection(listener.getsockname()).recv(1)


def spins_forever(seconds):
    while True:
        pass


def stopped_forever(seconds):
    os.kill(os.getpid(), 19)


def loader_stuck(seconds):
    from torch.utils.data import DataLoader, Dataset

    class Stuck(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            sleep(FOREVER)

    list(DataLoader(Stuck(), num_workers=1))


def file_lock_never_released(seconds):
    import fcntl
    path = fresh("lock")
    told, tell = os.pipe()
    outside("import fcntl\nf = open(sys.argv[1], 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\nos.write(int(sys.argv[2]), b'x')\n"
            "sleep(600)\n", path, tell, fds=[tell])
    os.read(told, 1)
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def fifo_never_opened(seconds):
    path = fresh("fifo")
    os.mkfifo(path)
    with open(path, encoding="ascii"):
        pass


def queue_never_filled(seconds):
    """The queue's feeder waits for a socket, to which another process could write."""
    import queue
    items, (ours, its) = queue.Queue(), socket.socketpair()
    outside("sleep(600)\n", fds=[its.fileno()])
    its.close()
    threading.Thread(target=lambda: items.put(ours.recv(1)), daemon=True).start()
    items.get()


def process_lock_never_released(seconds):
    import multiprocessing
    context = multiprocessing.get_context("fork")
    lock, told, tell = context.Lock(), *context.Pipe(False)

    def hold():
        with lock:
            tell.send(1)
            sleep(FOREVER)

    context.Process(target=hold, daemon=True).start()
    told.recv()
    with lock:
        pass


def terminal_never_answers(seconds):
    import pty
    people, terminal = pty.openpty()
    outside("sleep(600)\n", fds=[people])
    os.dup2(terminal, 0)
    sys.stdin = open(0, encoding="ascii", closefd=False)
    input()


def file_never_there(seconds):
    path = fresh("file")
    while not os.path.exists(path):
        sleep(0.3)


def thread_never_ends(seconds):
    thread = threading.Thread(target=sleep, args=(FOREVER,), daemon=True)
    thread.start()
    thread.join()


def native_sleep_with_gil_forever(seconds):
    import ctypes
    ctypes.PyDLL(None).sleep(FOREVER)


# ---------------------------------------------------------------- these can't


def lock_taken_twice(seconds):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def locks_crossed(seconds):
    """Each of two threads has the lock that the other waits for."""
    first, second, ready = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with second:
            ready.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        ready.wait()
        with second:
            pass


def event_never_set(seconds):
    threading.Event().wait()


def kinds_crossed(seconds, mine):
    """One of the ranks has left the loop earlier."""
    import torch.distributed as dist
    if mine:
        dist.barrier()
    else:
        dist.all_reduce(tensor())
        dist.barrier()


def groups_crossed(seconds, mine):
    import torch.distributed as dist
    groups = [dist.new_group(), dist.new_group()]
    dist.all_reduce(tensor(), group=groups[0 if mine else 1])
    dist.all_reduce(tensor(), group=groups[1 if mine else 0])


def group_and_default_crossed(seconds, mine):
    import torch.distributed as dist
    group = dist.new_group()
    if mine:
        dist.all_reduce(tensor(), group=group)
        dist.all_reduce(tensor())
    else:
        dist.all_reduce(tensor())
        dist.all_reduce(tensor(), group=group)


def one_collective_more(seconds, mine):
    """The others wait for their end, in a group of their own."""
    import torch.distributed as dist
    group = dist.new_group()
    if mine:
        dist.all_reduce(tensor())
    dist.barrier(group=group)


def left_with_its_connections_kept(seconds, mine):
    """The rank's child has copies of its connections, so no other rank sees it leave."""
    import torch.distributed as dist
    if not mine:
        dist.all_reduce(tensor())
    elif os.fork() == 0:
        sleep(FOREVER)
    else:
        sys.exit(0)


ENDLESS = (sleeps_forever, child_never_ends, child_process_never_ends, server_never_answers, spins_forever, stopped_forever,
           loader_stuck, file_lock_never_released, fifo_never_opened, queue_never_filled, process_lock_never_released,
           terminal_never_answers, file_never_there, thread_never_ends, native_sleep_with_gil_forever)
PROVABLE = (lock_taken_twice, locks_crossed, event_never_set, kinds_crossed, groups_crossed, group_and_default_crossed,
            one_collective_more, left_with_its_connections_kept)
