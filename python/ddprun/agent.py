"""A worker's calls to the agent of its node (docs/PROTOCOL.md, "Workers and their agent"). Nothing but the standard library."""

import collections
import os
import threading

from ddprun import grpc_channel
from ddprun.grpc_channel import RpcError, read_varint, varint

__all__ = ["Agent", "Assignment", "RpcError", "Store"]

_SERVICE = "/ddprun.agent.v1.Agent/"
# The agent answers a wait whose time is over; this margin is for an agent that hangs (more than W2's waits).
_MARGIN = 20.0
_MILLISECONDS_MAX = (1 << 32) - 1
_ASSIGNMENT = {1: "generation", 2: "rank", 3: "local_rank", 4: "world_size", 5: "local_world_size", 6: "group_rank",
               7: "group_world_size", 8: "restart_count", 9: "max_restarts", 10: "run_id", 11: "master_addr", 12: "master_port",
               13: "node_address"}
_TEXTS = ("run_id", "master_addr", "node_address")


class Assignment(collections.namedtuple("Assignment", list(_ASSIGNMENT.values()))):
    """A worker's place in a generation: the fields that a newly started worker has in its environment."""

    __slots__ = ()

    def export(self):
        """Puts the place into this process' environment, where the program may read it again."""
        os.environ.update({
            "RANK": str(self.rank), "WORLD_SIZE": str(self.world_size), "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size), "GROUP_RANK": str(self.group_rank),
            "GROUP_WORLD_SIZE": str(self.group_world_size), "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port), "TORCHELASTIC_RESTART_COUNT": str(self.restart_count),
            "DDPRUN_GENERATION": str(self.generation)})


def _field(number, value):
    """A field of a Protobuf message: a text, bytes or a number that isn't negative."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def _fields(data):
    """[(number, int or bytes)] of a message, in order, with unknown fields."""
    found, at = [], 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(data, at)
        elif kind == 2:
            size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {kind}")
        if at > len(data):
            raise ValueError("a field that is cut off")
        found.append((key >> 3, value))
    return found


def _milliseconds(seconds):
    return min(max(int(-(-seconds * 1000 // 1)), 0), _MILLISECONDS_MAX)


class Agent:
    """The agent at a unix socket. Threads: any; a call that waits doesn't block other calls."""

    def __init__(self, path, run_id, local_rank):
        self.path, self._run_id, self._local_rank = path, run_id, local_rank
        self._lock = threading.Lock()
        self._idle = []
        self._pid = os.getpid()

    @classmethod
    def of_environment(cls):
        """The agent that has started this process, or None."""
        path = os.environ.get("DDPRUN_AGENT", "")
        rank = os.environ.get("LOCAL_RANK", "")
        if not path or not rank.isdigit():
            return None
        return cls(path, os.environ.get("TORCHELASTIC_RUN_ID", ""), int(rank))

    def assignment(self, after, seconds):
        """Waits for this worker's place in a generation newer than `after`, and releases `after`.

        RpcError: DEADLINE_EXCEEDED: there is none within `seconds`; ABORTED: the job is over.
        """
        request = _field(1, self._local_rank) + _field(2, after) + _field(3, _milliseconds(seconds))
        reply = self._call("GetAssignment", request, seconds)
        values = dict.fromkeys(_ASSIGNMENT.values(), 0)
        values.update(dict.fromkeys(_TEXTS, ""))
        for number, value in reply:
            name = _ASSIGNMENT.get(number)
            if name is not None and isinstance(value, bytes) == (name in _TEXTS):
                values[name] = value.decode("utf-8", "replace") if name in _TEXTS else value
        place = Assignment(**values)
        if place.generation == 0 or place.rank >= place.world_size or place.local_rank != self._local_rank:
            raise RpcError(grpc_channel.INTERNAL, f"the agent's assignment contradicts itself: {place}")
        return place

    def await_generation_end(self, generation, on_sent=None, same_place=False):
        """Waits for the end of a generation that this worker takes part in; returns why it ended.

        on_sent: is called when the request is sent. From then on the agent doesn't stop the worker at that end; the worker goes
        on in its process (docs/PROTOCOL.md, W10). same_place: only with the same rank among as many workers.
        RpcError: ABORTED: the job is over; FAILED_PRECONDITION: the worker is being stopped already.
        """
        request = _field(1, self._local_rank) + _field(2, generation) + _field(3, int(same_place))
        reply = self._call("AwaitGenerationEnd", request, None, on_sent)
        return b"".join(value for number, value in reply if number == 1).decode("utf-8", "replace")

    def keep_memory(self, slot, size):
        """(path, size) of a file in the agent's memory, which outlives this worker; ("", 0) = there is none.

        slot: which of the worker's files, 0 to 47. size: in bytes; a larger file than the one that there is begins empty; 0 = the
        one that there is.
        RpcError: RESOURCE_EXHAUSTED: --memory_checkpoints, or the memory that is available, doesn't allow it; the text says so.
        """
        reply = self._call("KeepMemory", _field(1, self._local_rank) + _field(2, slot) + _field(3, size), 0.0)
        path = b"".join(value for number, value in reply if number == 1).decode("utf-8", "replace")
        return path, next((value for number, value in reply if number == 2 and isinstance(value, int)), 0)

    def store(self, generation):
        return Store(self, generation)

    def operate(self, generation, number, operation, seconds):
        """One operation on a generation's store; the reply's fields."""
        request = _field(1, generation) + _field(2, self._run_id) + _field(number, operation)
        return self._call("Store", request, seconds)

    def _call(self, method, request, seconds, on_sent=None):
        channel = self._channel()
        try:
            deadline = None if seconds is None else seconds + _MARGIN
            return _fields(channel.call(_SERVICE + method, request, deadline, on_sent))
        except RpcError as error:
            raise RpcError(error.code, f"{method} at the agent '{self.path}' failed: {error.text}") from None
        except (ValueError, IndexError) as error:
            raise RpcError(grpc_channel.INTERNAL, f"{method} at the agent '{self.path}': a malformed reply: {error}") from None
        finally:
            self._give_back(channel)

    def _channel(self):
        """An idle connection, or a new one."""
        with self._lock:
            if self._pid != os.getpid():  # a forked child: its parent's connections are not its own
                self._idle, self._pid = [], os.getpid()
            while self._idle:
                channel = self._idle.pop()
                if channel.is_open():
                    return channel
                channel.release()
        return grpc_channel.Channel(self.path)

    def _give_back(self, channel):
        if not channel.is_open():
            channel.release()
            return
        with self._lock:
            self._idle.append(channel)


class Store:
    """The key-value store of one generation (docs/PROTOCOL.md, W5). Keys are texts or bytes, values bytes. Threads: any.

    RpcError: ABORTED: the generation is over; DEADLINE_EXCEEDED: a key did not appear in time; the text names it.
    """

    def __init__(self, agent, generation):
        self._agent, self.generation = agent, generation

    def set(self, key, value):
        self._operate(10, _field(1, key) + _field(2, value))

    def gather(self, keys, seconds, key="", value=b""):
        """Sets `key`, if one is given, and returns the values of `keys` as soon as all are there."""
        message = (_field(1, key) + _field(2, value) if key else b"") + b"".join(_field(3, one) for one in keys)
        reply = self._operate(18, message + _field(4, _milliseconds(seconds)), seconds)
        values = [one for number, one in reply if number == 4]
        if len(values) != len(keys):
            raise RpcError(grpc_channel.INTERNAL, f"the agent answered {len(values)} values for {len(keys)} keys of the store")
        return values

    def wait(self, keys, seconds):
        self._operate(12, b"".join(_field(1, key) for key in keys) + _field(2, _milliseconds(seconds)), seconds)

    def add(self, key, amount):
        """Adds to a number, signed and of 64 bits; returns the new number."""
        number = self._number(2, self._operate(13, _field(1, key) + _field(2, amount % (1 << 64))))
        return number - (1 << 64) if number >= 1 << 63 else number

    def check(self, keys):
        """Whether all keys are there."""
        return bool(self._number(3, self._operate(14, b"".join(_field(1, key) for key in keys))))

    def delete(self, key):
        """Deletes a key; returns whether it existed."""
        return bool(self._number(3, self._operate(15, _field(1, key))))

    def compare_set(self, key, expected, desired):
        """Sets the value if it is `expected`; returns the value afterwards, or `expected` if there is none."""
        reply = self._operate(16, _field(1, key) + _field(2, expected) + _field(3, desired))
        return next((value for number, value in reply if number == 1), b"")

    def count(self):
        return self._number(2, self._operate(17, b""))

    def _operate(self, number, operation, seconds=0.0):
        return self._agent.operate(self.generation, number, operation, seconds)

    @staticmethod
    def _number(which, reply):
        return next((value for number, value in reply if number == which and isinstance(value, int)), 0)
