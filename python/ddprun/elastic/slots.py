"""Checkpoints in files of the agent's memory, which outlive the worker. Nothing but the standard library.

A slot is a file with one checkpoint. A worker that is killed while it writes must never leave a checkpoint that looks whole, so a
slot has two numbers: `begun` is stored before the first byte of a checkpoint, `done`, the same number, after the last one.

    slot 0: begun 7, done 7, step 70         the newest whole checkpoint
    slot 1: begun 8, done 6, step 60         killed within number 8: neither 8 nor what it has overwritten is there

The next checkpoint goes into a slot that isn't whole, else into the one with the lowest number.
"""

import ctypes
import mmap
import os
import struct
import threading
from collections import namedtuple

_MAGIC = b"DDPRUNM2"
_HEAD = struct.Struct("<8s8Q")
_DONE, _SHARED = 16, 64  # their places in it
_HEAD_BYTES = 4096
_ALIGNED = 64
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # madvise(2); Linux 5.14
_PART_BYTES, _THREADS = 8 << 20, 8  # of a load
_copy = ctypes.memmove  # other threads run meanwhile
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

Head = namedtuple("Head", "number step rank world text_bytes payload_bytes shared")
Head.__doc__ = """A whole checkpoint: its number, the step, the rank and the number of ranks that wrote it, the length of its text and of
text and tensors, in bytes, and the digest of the tensors that all ranks share (replicas.py); 0 = none."""


def is_whole(begun, done):
    return begun == done


def aligned(size):
    return -(-size // _ALIGNED) * _ALIGNED


def size_of(text, sizes):
    """The bytes of a checkpoint with a text and tensors of these sizes."""
    return _HEAD_BYTES + aligned(len(text)) + sum(aligned(size) for size in sizes)


def _populate(address, size, how):
    """Maps the pages that lie in this memory, which keep what they have. An older kernel refuses, and lets each page fault."""
    begin, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if begin < end:
        _libc.madvise(begin, end - begin, how)


class Slot:
    """One file of this worker's. Threads: one at a time."""

    def __init__(self, agent, number):
        """Takes the file that a former process of this worker has left, if there is one. RpcError, OSError: it can't be had."""
        self._agent, self._number = agent, number
        self.size, self._descriptor, self._map, self._address, self._is_touched = 0, -1, None, 0, False
        self._open(*agent.keep_memory(number, 0))

    def _open(self, path, size):
        if size == self.size:
            return
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._map = descriptor, mmap.mmap(descriptor, size)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.size, self._is_touched = size, False

    def make_room(self, size):
        """Has a file of at least so many bytes, and its pages touched: those of a new file cost ten times the copy. Such a file has no
        checkpoint. RpcError, OSError: the memory can't be had."""
        if size > self.size:
            self._open(*self._agent.keep_memory(self._number, aligned(size)))
        if not self._is_touched:
            # Memory that can't be had is an error here; at a store it would be a SIGBUS.
            os.posix_fallocate(self._descriptor, 0, self.size)
            _libc.madvise(self._address, self.size, _POPULATE_WRITE)  # an older kernel lets each page fault
            self._is_touched = True

    def head(self):
        """The whole checkpoint's, or None."""
        if self.size < _HEAD_BYTES:
            return None
        magic, begun, done, *rest = _HEAD.unpack_from(self._map, 0)
        if magic != _MAGIC or begun == 0 or not is_whole(begun, done):
            return None
        return Head(begun, *rest)

    def clear(self):
        """Forgets the checkpoint."""
        if self.size:
            struct.pack_into("<Q", self._map, _DONE, 0)

    def write(self, head, text, pieces, is_right):
        """Writes a checkpoint, and returns whether it counts. pieces: (address, size) of each tensor. is_right() is asked when all is
        copied: whether it was constant meanwhile. Requires: make_room(), and a number that is the highest."""
        self.begin(head)
        self._map[_HEAD_BYTES:_HEAD_BYTES + len(text)] = text
        at = self._address + _HEAD_BYTES + aligned(len(text))
        for address, size in pieces:
            _copy(at, address, size)
            at += aligned(size)
        if not is_right():
            return False
        self.finish(head)
        return True

    def begin(self, head):
        """Begins a checkpoint; the caller fills its payload(). Requires: as write()."""
        self.clear()
        _HEAD.pack_into(self._map, 0, _MAGIC, head.number, 0, *head[1:])

    def finish(self, head):
        struct.pack_into("<Q", self._map, _DONE, head.number)

    def payload(self, head):
        """The memory of its text and tensors."""
        return memoryview(self._map)[_HEAD_BYTES:_HEAD_BYTES + head.payload_bytes]

    def send(self, connection, begin, size):
        """Sends a part of the payload from this memory itself, which mustn't change before the peer has it. OSError."""
        begin += _HEAD_BYTES
        end = begin + size
        while begin < end:
            begin += os.sendfile(connection.fileno(), self._descriptor, begin, end - begin)

    def set_shared(self, digest):
        struct.pack_into("<Q", self._map, _SHARED, digest)

    def text(self, head):
        return self._map[_HEAD_BYTES:_HEAD_BYTES + head.text_bytes]

    def read(self, head, pieces):
        """Copies the tensors to where they belong, in several threads: most of the time passes in page faults of the new memory.
        pieces: (address, size) of each, or (None, size) to pass over it."""
        parts, at = [], self._address + _HEAD_BYTES + aligned(head.text_bytes)
        for address, size in pieces:
            if address is not None:
                parts += [(address + begin, at + begin, min(_PART_BYTES, size - begin)) for begin in range(0, size, _PART_BYTES)]
            at += aligned(size)

        def copy():
            while parts:
                try:
                    to, source, size = parts.pop()
                except IndexError:  # another thread has taken the last one
                    return
                _populate(to, size, _POPULATE_WRITE)  # all of a part's pages in one call
                _populate(source, size, _POPULATE_READ)
                _copy(to, source, size)
        threads = [threading.Thread(target=copy) for _ in range(min(_THREADS, len(os.sched_getaffinity(0)), len(parts)) - 1)]
        for thread in threads:
            thread.start()
        copy()
        for thread in threads:
            thread.join()


class Slots:
    """Some of this worker's slots. Threads: one at a time."""

    def __init__(self, agent, count, first=0):
        self._slots = [Slot(agent, first + number) for number in range(count)]

    def exist(self):
        return any(slot.size for slot in self._slots)

    def whole(self):
        """[(slot, head)] of the whole checkpoints."""
        return [(slot, head) for slot, head in ((slot, slot.head()) for slot in self._slots) if head is not None]

    def keep_only(self, step, world=None):
        """Forgets all checkpoints but that of a step. step None: all. world: and of another number of ranks; None = any."""
        for slot, head in self.whole():
            if head.step != step or world not in (None, head.world):
                slot.clear()

    def write(self, step, rank, world, text, pieces, is_right=lambda: True):
        """Writes a checkpoint over the oldest one, as Slot.write()."""
        size = size_of(text, [size for _, size in pieces])
        slot, head = self.next(Head(0, step, rank, world, len(text), size - _HEAD_BYTES, 0))
        return slot.write(head, text, pieces, is_right)

    def next(self, head):
        """(the slot with the oldest checkpoint, with room for one like `head`; the head with its number)"""
        heads = dict(self.whole())
        slot = min(self._slots, key=lambda one: heads[one].number if one in heads else 0)
        slot.make_room(_HEAD_BYTES + head.payload_bytes)
        return slot, head._replace(number=max((one.number for one in heads.values()), default=0) + 1)

    def touch_ahead(self, size):
        """Gives all slots room for a checkpoint of that size, and touches their pages; a slot with a checkpoint isn't changed.
        Returns the room that all have."""
        for slot in self._slots:
            if slot.head() is None:
                slot.make_room(size)
        return min(slot.size for slot in self._slots)
