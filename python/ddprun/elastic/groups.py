"""Process groups that stay the same objects while the connections under them are replaced.

DDP, device meshes and programs keep the group that they were given. So the group is an object for good, and forwards each
collective to a backend (Gloo's) that a new generation replaces.

What ends a collective that waits for a lost peer: shutdown(2) of the sockets of the backend. Gloo has no other way: abort(),
shutdown() and destroy_process_group() did nothing within 2.5 s, and its own timeout is 30 minutes. Which sockets are the
backend's is known for certain, whatever else the program opens at the same time: each backend listens on a port of its own, the
ranks tell each other these addresses, and a connection of the backend has one of them as an end. The listening socket stays as
it is, because Gloo's thread ends the process when accept(2) fails.

    rank 0 listens on 10.0.0.1:4000, rank 1 on 10.0.0.2:5000
    rank 1:  10.0.0.2:38122 -> 10.0.0.1:4000      the remote end is rank 0's listener: shut down
             10.0.0.2:41000 -> 10.0.0.9:443       neither end is one: somebody else's
"""

import atexit
import os
import socket
import stat
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ddprun.elastic.store import PeerError

NAME = "ddprun"
# All ranks are there when they begin to connect. A thread that waits for one that has died meanwhile is left behind for so long.
CONNECT_TIMEOUT = timedelta(seconds=120)
_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "allgather", "_allgather_base", "allgather_into_tensor_coalesced", "allgather_coalesced",
    "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "reduce", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "scatter", "send", "recv", "recv_anysource", "monitored_barrier")


def missing_parts():
    """What this version of torch lacks of that which is used here: names, [] = nothing."""
    wanted = [(c10d, "FakeProcessGroup"), (c10d, "ProcessGroupGloo"), (dist.Backend, "register_backend"),
              (getattr(c10d, "ProcessGroupGloo", object), "create_default_device"), (dist, "_compute_bucket_assignment_by_size"),
              (dist, "_broadcast_coalesced"), (dist, "DistStoreError")]
    return [f"{getattr(owner, '__name__', owner)}.{name}" for owner, name in wanted if not hasattr(owner, name)]


def _tcp_sockets():
    """Copies of this process' TCP sockets, which the caller closes."""
    copies = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed meanwhile
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            copies.append(copy)
        else:
            copy.close()
    return copies


def _end(address):
    """A socket's address as ranks tell it each other."""
    return f"{address[0]} {address[1]}"


def _listening():
    """The addresses where this process listens."""
    found = set()
    for copy in _tcp_sockets():
        with copy:
            if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.add(_end(copy.getsockname()))
    return found


class Connections:
    """The sockets of one backend, by the addresses where its ranks listen."""

    def __init__(self, listeners):
        self._listeners = frozenset(listeners)

    def shut_down(self):
        """Ends all that waits on them, and returns how many there were. Threads: any."""
        count = 0
        for copy in _tcp_sockets():
            with copy:
                try:
                    if not {_end(copy.getsockname()), _end(copy.getpeername())}.isdisjoint(self._listeners):
                        copy.shutdown(socket.SHUT_RDWR)
                        count += 1
                except OSError:
                    pass  # it listens, or isn't connected
        return count


class Over:
    """That a generation is over: what was told of it, and what ends then."""

    def __init__(self):
        self._lock = threading.Condition()
        self._connections = []
        self.why = ""       # "" = it goes on
        self.fatal = False  # no other generation follows for this process
        self.place = None   # in the next generation, where there is one

    def add(self, connections):
        """Sockets that are shut down when the generation is over; at once, if it is."""
        with self._lock:
            self._connections.append(connections)
            is_over = bool(self.why)
        if is_over:
            connections.shut_down()

    def tell(self, why, fatal=False):
        with self._lock:
            self.why, self.fatal = why or "the generation is over", fatal
            told = list(self._connections)
            self._lock.notify_all()
        for connections in told:
            connections.shut_down()

    def follow(self, place):
        with self._lock:
            self.place = place
            self._lock.notify_all()

    def wait(self, condition, seconds=None):
        """Until condition(self), or for so long; whether it holds. Whoever changes what it looks at calls wake()."""
        with self._lock:
            return self._lock.wait_for(lambda: condition(self), seconds)

    def wake(self):
        with self._lock:
            self._lock.notify_all()


def _device():
    """(a device of Gloo's, the address where it listens)."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    make = c10d.ProcessGroupGloo
    for _ in range(5):  # another thread may begin to listen just then
        before = _listening()
        device = make.create_device(interface=names[0]) if names else make.create_default_device()
        new = _listening() - before
        if len(new) == 1:
            return device, new.pop()
    raise RuntimeError(f"a device of Gloo's listens on {len(new)} addresses instead of 1; torch {torch.__version__} isn't known")


class _Group(dist.ProcessGroup):
    """A group for good; `inner` is the backend of the generation."""

    def __init__(self, rank, size, name):
        super().__init__(rank, size)
        self.inner = None
        self._rank, self._size, self._name = rank, size, name

    def place(self, rank, size):
        self._rank, self._size = rank, size

    def getBackendName(self):
        return NAME

    def name(self):
        return NAME

    def size(self):
        return self._size

    def rank(self):
        return self._rank

    getSize, getRank = size, rank

    def abort(self):
        pass

    def shutdown(self):
        pass

    def getGroupName(self):
        return self._name

    def setGroupName(self, name):
        self._name = name

    @property
    def group_name(self):
        return self._name


def _forwarding(name):
    def call(self, *arguments, **named):
        return getattr(self.inner, name)(*arguments, **named)
    call.__name__ = name
    return call


for _name in _COLLECTIVES:
    setattr(_Group, _name, _forwarding(_name))


class Groups:
    """All groups of this process, in the order in which they were made, which is the same on all ranks."""

    def __init__(self):
        self._all = []       # (group, the global ranks in it; [] = all)
        self.stands_in = False  # groups are made without anybody: this process sets itself up beside a job that trains
        self.over = None     # of the generation
        self.store = None    # the AgentStore
        self.timeout = timedelta(minutes=30)

    def __len__(self):
        return len(self._all)

    def create(self, options, _):
        """As torch asks for a backend."""
        rank, size = options.group_rank, options.group_size
        group = _Group(rank, size, str(options.group_id))
        self._all.append((group, list(options.global_ranks_in_group)))
        if self.stands_in:
            make = getattr(c10d.FakeProcessGroup, "_create_internal", c10d.FakeProcessGroup)
            group.inner = make(rank, size)
        else:
            group.inner = self._connect(len(self._all) - 1, rank, size)
        return group

    def reform(self, rank, size):
        """Puts new backends under all groups. The group of all may have another size.

        PeerError: the generation ended meanwhile, or a group of some ranks does not fit into it.
        """
        for number, (group, ranks) in enumerate(self._all):
            if ranks and len(ranks) == group.size() and ranks != list(range(len(ranks))) and max(ranks) >= size:
                raise PeerError(f"the job has {size} ranks, and a group is of ranks {ranks}")
            group.inner = None
            is_all = not ranks or number == 0
            if is_all:
                group.place(rank, size)
            elif rank in ranks:
                group.place(ranks.index(rank), len(ranks))
            else:
                continue
            group.inner = self._connect(number, group.rank(), group.size())

    def close(self):
        """Ends the threads of all backends while the interpreter can: what they hold of Python's goes with them."""
        for group, _ in self._all:
            group.inner = None

    def _connect(self, number, rank, size):
        """A backend of Gloo's. In a thread of its own, which is left behind if the generation ends: who listens for a peer that has
        died has no connection yet that could be shut down."""
        device, address = _device()
        prefix = f"ddprun/group{number}/"
        told = self.store.gather(f"{prefix}listener{rank}", address.encode(), [f"{prefix}listener{one}" for one in range(size)])
        connections = Connections(one.decode() for one in told)
        options = c10d.ProcessGroupGloo._Options()
        options._devices, options._threads, options._timeout = [device], 2, CONNECT_TIMEOUT
        store, over, result = dist.PrefixStore(prefix, self.store), self.over, []

        def connect():
            try:
                result.append(c10d.ProcessGroupGloo(store, rank, size, options))
            except Exception as error:  # whatever it is, the caller raises it
                result.append(error)
            over.wake()
        over.add(connections)
        threading.Thread(target=connect, name="ddprun connect", daemon=True).start()
        over.wait(lambda told: result or told.why)
        if not result:
            raise PeerError(f"the generation ended while its ranks connected: {over.why}")
        if isinstance(result[0], Exception):
            raise result[0]
        if over.why:
            connections.shut_down()  # what was connected after the word
        result[0]._set_default_timeout(self.timeout)
        return result[0]


groups = Groups()
atexit.register(groups.close)


def register():
    """Has torch make groups of this kind for the backend "ddprun"."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, groups.create, extended_api=True, devices=["cpu", "cuda"])
