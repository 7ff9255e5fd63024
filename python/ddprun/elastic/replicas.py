"""Copies of checkpoints in the memory of another node's agent, for the case that a node is lost (docs/ELASTIC.md, "Memory").

Each worker sends its checkpoints to a worker of the next node, which keeps them in slots of its own agent's memory:

    node 0: rank 0's own and rank 1's copy          node 1: rank 1's own and rank 0's copy
    node 1 is lost with its memory: rank 0 gives the new rank 1 its checkpoint

A copy leaves out what all ranks *share* (parameters of DistributedDataParallel, and the state that optimizers have of them): the
worker that keeps it has them in its own checkpoint of that step, if the digests of both are equal; if not, the copy is whole. So
with DistributedDataParallel a copy is small, and with FSDP it has all of the shards.

Copies have as many slots as a worker's own checkpoints, because each rank waits in save() until its last copy has arrived, one step
before the next one is kept:

    rank 0 overwrites step 0 with step 20: all ranks have begun step 20, so all have a copy of step 10
"""

import atexit
import contextlib
import hashlib
import os
import socket
import struct
import threading

import torch

from ddprun import grpc_channel
from ddprun.elastic.checkpoints import say
from ddprun.elastic.peers import connected, knows, new_secret, receive_into, received
from ddprun.elastic.slots import Head, Slot, Slots, aligned
from ddprun.elastic.snapshot import pieces_of

_MESSAGE = struct.Struct("<8Q")  # operation, which of the receiver's senders, and a head without its number
_KEEP, _GIVE = 1, 2
_LENGTH = struct.Struct("<Q")
_DIFFERS = "differs"
_SLOTS_MAX = 3  # of one rank's checkpoints
_CONNECT_SECONDS = 60.0
_END_SECONDS = 5.0
_OWN_SECONDS = 20.0


def has_other_node():
    return os.environ.get("GROUP_WORLD_SIZE", "1") != "1"


class Replicas:
    """The copies that this worker keeps for another node, and the sender of its own. Threads: the one that trains, and that of
    Checkpoints for send(); it starts others."""

    def __init__(self, agent, own, count):
        """own: the worker's own Slots. count: how many slots a rank's copies have. RpcError, OSError: there is no address."""
        self._agent, self._own, self._count = agent, own, count
        self._place = agent.assignment(0, 0.0)
        self._lock = threading.Condition()
        self._groups = {}   # Slots, by which sender's they are
        self._job = self._thread = self._connection = self._peer = None
        self._saves = True  # this rank has had a checkpoint for the last copy that came
        while self._group(len(self._groups)).exist():
            pass
        family, _, _, _, address = socket.getaddrinfo(self._place.node_address, 0, type=socket.SOCK_STREAM)[0]
        self._listener = socket.create_server(address, family=family)
        self._secret = new_secret()
        threading.Thread(target=self._accept, name="ddprun copies", daemon=True).start()

    def note(self):
        """What the other ranks are to know of this one."""
        return {"address": self._listener.getsockname()[:2], "secret": self._secret.hex(), "node": self._place.group_rank,
                "local": self._place.local_rank, "own": note_of(self._own),
                "copies": [one for group in list(self._groups.values()) for one in note_of(group)]}

    def begin(self, notes, rank):
        """Sends copies from now on. notes: of all ranks."""
        self.wait()
        own = notes[rank]
        nodes = 1 + max(note["node"] for note in notes if "node" in note)
        theirs = [other for other, note in enumerate(notes) if note.get("node") == (own["node"] + 1) % nodes]
        if nodes == 1:
            return
        if not theirs:
            say("no copies of checkpoints on another node: its workers keep none")
            return
        self._connection, self._peer = None, (notes[theirs[own["local"] % len(theirs)]], own["local"] // len(theirs))
        for step, of, world, _ in own["own"]:
            if (of, world) == (rank, len(notes)) and [step, of, world] not in [one[:3] for one in self._peer[0]["copies"]]:
                self.send(*next((slot, head) for slot, head in self._own.whole() if (head.step, head.rank) == (step, rank)))

    def leave(self):
        """Sends nothing more before begin(): the receiver may be lost."""
        with self._lock:
            self._peer = None
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)  # a send that waits ends

    def keep_only(self, step, world=None):
        """Forgets copies as Slots.keep_only()."""
        with self._lock:
            for group in self._groups.values():
                group.keep_only(step, world)

    def send(self, slot, head):
        """Begins to send a checkpoint, which mustn't change before wait()."""
        self.wait()
        with self._lock:
            self._job = (slot, head)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ddprun sends copies", daemon=True)
                self._thread.start()
                atexit.register(self._end, os.getpid())
            self._lock.notify_all()

    def wait(self):
        """Waits until the last checkpoint's copy has arrived, or there is none to come."""
        with self._lock:
            self._lock.wait_for(lambda: self._job is None)

    def fetch(self, note, step, rank, world, aside=False):
        """Gets a checkpoint from the worker that has written the note; (slot, head). aside: into none of the own slots. OSError: it
        can't be had."""
        with _connected(note) as connection:
            connection.sendall(_MESSAGE.pack(_GIVE, 0, step, rank, world, 0, 0, 0))
            _, _, *head = _MESSAGE.unpack(received(connection, _MESSAGE.size))
            slot, head = self._place_for(Head(0, *head), aside)
            slot.begin(head)
            receive_into(connection, slot.payload(head))
            slot.finish(head)
        return slot, head

    def _place_for(self, head, aside):
        """One of the own slots, so that the agent has it from now on; else other memory."""
        if not aside and len(self._own.whole()) < self._count:
            try:
                return self._own.next(head)
            except (grpc_channel.RpcError, OSError):
                pass
        return Slots(_OwnMemory(), 1).next(head)

    def former(self, notes, step, world, holders):
        """For resharding.tree_of(): a function from one of `world` former ranks to its checkpoint, (slot, head). OSError."""
        def found(source):
            own = ((slot, head) for slot, head in self._own.whole() if head[1:4] == (step, source, world))
            return next(own, None) or self.fetch(notes[holders[source]], step, source, world, aside=True)
        return found

    def _group(self, sender):
        if sender not in self._groups:
            self._groups[sender] = Slots(self._agent, self._count, _SLOTS_MAX * (1 + sender))
        return self._groups[sender]

    # ---- this rank's own checkpoints

    def _run(self):
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._job is not None)
                slot, head = self._job
            try:
                digest = digest_of(slot, head)
                with self._lock:
                    slot.set_shared(digest)
                    self._lock.notify_all()
                    peer = self._peer
                if peer is not None:
                    self._send(peer, slot, head._replace(shared=digest))
            except ConnectionError as error:
                self._turn_off("" if self._connection is not None else str(error))  # a peer that has ended says why itself
            except Exception as error:  # whatever it is, training goes on without it
                self._turn_off(f"{type(error).__name__}: {error}")
            with self._lock:
                self._job = None
                self._lock.notify_all()

    def _send(self, peer, slot, head):
        if self._connection is None:
            self._connection = _connected(peer[0])
        parts = _parts_of(slot, head) if head.shared else [(slot, 0, head.payload_bytes)]
        size = sum(size for _, _, size in parts)
        self._connection.sendall(_MESSAGE.pack(_KEEP, peer[1], *head[1:5], size, head.shared))
        why = _text(self._connection)
        if why == _DIFFERS:
            self._send(peer, slot, head._replace(shared=0))
        elif why:
            self._turn_off(why)
        else:
            for one, begin, length in parts:
                one.send(self._connection, begin, length)
            _text(self._connection)

    def _turn_off(self, why):
        self._peer = None
        if why:
            say(f"no copies of checkpoints on another node: {why}")

    def _end(self, pid):
        if pid == os.getpid():
            with self._lock:  # a digest's tensors must not outlive the interpreter
                self._lock.wait_for(lambda: self._job is None, _END_SECONDS)

    # ---- other ranks' copies

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except ConnectionError:  # it was closed meanwhile
                continue
            threading.Thread(target=self._serve, args=(connection,), name="ddprun copy", daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                if not knows(connection, self._secret):
                    return
                while True:
                    operation, sender, *head = _MESSAGE.unpack(received(connection, _MESSAGE.size))
                    if operation == _KEEP:
                        self._keep(connection, sender, Head(0, *head))
                    else:
                        self._give(connection, *head[:3])
            except (OSError, StopIteration):
                pass  # the peer has ended, or asks for what isn't there

    def _keep(self, connection, sender, head):
        if head.shared and not self._has_shared(head):
            _reply(connection, _DIFFERS)
            return
        try:
            with self._lock:
                slot, head = self._group(sender).next(head)
                slot.begin(head)
        except grpc_channel.RpcError as error:
            _reply(connection, f"rank {os.environ.get('RANK')}: {error.text}")
            return
        except OSError as error:
            _reply(connection, f"rank {os.environ.get('RANK')}: {error}")
            return
        _reply(connection, "")
        receive_into(connection, slot.payload(head))
        slot.finish(head)
        _reply(connection, "")

    def _has_shared(self, head):
        """Whether the own checkpoint of that step has the same in what ranks share. It may still be under way."""
        def own():
            return [one.shared for _, one in self._own.whole() if one.step == head.step and one.shared]
        with self._lock:
            self._saves = bool(self._lock.wait_for(own, _OWN_SECONDS if self._saves else 0))
            return head.shared in own()

    def _give(self, connection, *which):
        for slots in (self._own, *list(self._groups.values())):
            for slot, head in slots.whole():
                if head[1:4] == which:
                    parts = [(slot, 0, head.payload_bytes)]
                    if head.shared and slots is not self._own:
                        parts = _parts_of(slot, head, *next((own, one) for own, one in self._own.whole()
                                                            if (one.step, one.shared) == (head.step, head.shared)))
                    size = sum(size for _, _, size in parts)
                    connection.sendall(_MESSAGE.pack(_GIVE, 0, *head[1:5], size, head.shared))
                    for one, begin, length in parts:
                        one.send(connection, begin, length)
                    return
        raise ConnectionError("no such checkpoint")


class _OwnMemory:
    """Memory of this process in place of the agent's."""

    def keep_memory(self, _, size):
        if not size:
            return "", 0
        descriptor = os.memfd_create("ddprun-memory")
        os.ftruncate(descriptor, size)
        return f"/proc/self/fd/{descriptor}", size


def note_of(slots):
    return [[head.step, head.rank, head.world, head.shared] for _, head in slots.whole()]


def choose(notes, world=None):
    """The newest step that all checkpoints of `world` ranks exist for, by default of as many as there are notes, and which rank has
    each one: (step, [rank]), or (None, None)."""
    world, holders = world or len(notes), {}
    for holder, note in enumerate(notes):
        own = note["own"]
        usable = [one for one in note.get("copies", []) if not one[3] or any((one[0], one[3]) == (mine[0], mine[3]) for mine in own)]
        for step, rank, of, _ in own + usable:
            if of == world:
                found = holders.setdefault(step, {})
                found[rank] = rank if rank == holder else found.get(rank, holder)
    step = max((step for step, found in holders.items() if len(found) == world), default=None)
    return (step, [holders[step][rank] for rank in range(world)]) if step is not None else (None, None)


def newest(notes):
    """choose() of any number of ranks: (step, number of ranks, [rank]), or (None, None, None)."""
    worlds = {one[2] for note in notes for one in note["own"] + note.get("copies", [])}
    found = [(step, world == len(notes), world, holders) for world in worlds for step, holders in [choose(notes, world)]
             if step is not None]
    step, _, world, holders = max(found, default=(None,) * 4)
    return step, world, holders


def digest_of(slot, head):
    """A digest of the tensors that all ranks share, and of their places; 0 = there are none. A sum of words is as fast as a copy."""
    payload, digest = slot.payload(head), hashlib.sha256()
    at, found = aligned(head.text_bytes), False
    for number, (size, is_shared) in enumerate(pieces_of(slot.text(head))):
        if is_shared:
            words = torch.frombuffer(payload, dtype=torch.int64, count=size // 8, offset=at)
            digest.update(struct.pack("<QQq", number, size, int(words.sum())) + payload[at + size // 8 * 8:at + size])
            found = True
        at += aligned(size)
    return int.from_bytes(digest.digest()[:8], "little") or 1 if found else 0


def _parts_of(slot, head, own=None, own_head=None):
    """[(slot, begin, size)]: what a checkpoint has without the tensors that are shared. own: the checkpoint from which these are added
    to a copy that is without them."""
    parts = [(slot, 0, aligned(head.text_bytes))]
    at, own_at = aligned(head.text_bytes), aligned(own_head.text_bytes) if own else 0
    for size, is_shared in pieces_of(slot.text(head)):
        size = aligned(size)
        if is_shared and own:
            parts.append((own, own_at, size))
        elif not is_shared:
            parts.append((slot, at, size))
        if not (is_shared and own):
            at += size
        own_at += size
    return _joined(parts)


def _joined(parts):
    """Parts that follow each other in memory become one."""
    found = []
    for slot, begin, size in parts:
        if found and found[-1][0] is slot and sum(found[-1][1:]) == begin:
            found[-1] = (slot, found[-1][1], found[-1][2] + size)
        else:
            found.append((slot, begin, size))
    return found


def _connected(note):
    return connected(note["address"], bytes.fromhex(note["secret"]), _CONNECT_SECONDS)


def _reply(connection, text):
    connection.sendall(_LENGTH.pack(len(text.encode())) + text.encode())


def _text(connection):
    return received(connection, _LENGTH.unpack(received(connection, _LENGTH.size))[0]).decode()
