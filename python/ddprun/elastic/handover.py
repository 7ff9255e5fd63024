"""Gives a state to ranks that lack it while a new worker still sets itself up.

A new worker meets the others twice: in init_process_group(), and when it has made its Session. In between it imports, reads its
configuration and fills a model with random numbers that nobody will use. The others wait, and their state is at rest. So each of
them *offers* its state in its greeting, and the new worker *fetches* the newest one over TCP from a rank that has it:

    survivor                                     new worker
    greeting: kept, at (8, 0), address, secret   greeting: new
    waits for the notes; gives its state   -->   a thread fetches; the script makes its model
                                                 Session(): takes the state, and has position (8, 0)
    note: at (8, 0)                              note: at (8, 0)

A survivor that is a step behind fetches the same way before its note. A rank that couldn't fetch gets the state after the
notes, by a broadcast to all. The invariant: an offered state doesn't change before all notes are there, and a rank writes its
note when it doesn't fetch any more.
"""

import contextlib
import pickle
import socket
import struct
import threading

from ddprun.elastic.groups import groups
from ddprun.elastic.peers import connected, knows, new_secret, receive_into, received
from ddprun.elastic.transfer import bytes_of, empty_like, packed, shapes_of, unpacked

_LENGTHS = struct.Struct("<2Q")  # of the tree, and of the tensors' shapes
_CONNECT_SECONDS = 10.0
_BUFFER_BYTES = 65536


class Offer:
    """One rank's state for others. Threads: the one that trains; it starts others."""

    def __init__(self, position, state, preferred=False):
        """position: comparable; higher is newer. state: as transfer.packed(). preferred: to others of the position. OSError: there is
        no address."""
        self._state, self._connections, self._lock = state, [], threading.Lock()
        self._secret = new_secret()
        family = socket.AF_INET6 if ":" in groups.address else socket.AF_INET
        self._listener = socket.create_server((groups.address, 0), family=family)
        self.word = pickle.dumps((position, preferred, self._listener.getsockname()[:2], self._secret))
        self._threads = [threading.Thread(target=self._accept, name="ddprun offer", daemon=True)]
        self._threads[0].start()

    def close(self):
        """Ends it; the state may change."""
        with self._lock:
            connections, self._connections = self._connections, None
        for one in [self._listener, *connections]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._connections is None:
                    connection.close()
                    return
                self._connections.append(connection)
                self._threads.append(threading.Thread(target=self._give, args=(connection,), name="ddprun gives", daemon=True))
                self._threads[-1].start()

    def _give(self, connection):
        with connection, contextlib.suppress(Exception):  # whatever it is, the state comes after the notes
            if not knows(connection, self._secret):
                return
            text, tensors = packed(self._state)
            shapes = shapes_of(tensors)
            with connection.makefile("wb", _BUFFER_BYTES) as file:
                file.write(_LENGTHS.pack(len(text), len(shapes)) + text + shapes)
                for tensor in tensors:
                    file.write(bytes_of(tensor.cpu()))


class Fetch:
    """The state that a rank gets from another one. Threads: the one that trains; it starts another."""

    def __init__(self, words, rank, position=None):
        """words: those of the offers, by rank; b"" = none. rank: this one, with a state of this position; None = it has none."""
        self._over, self._connection, self._text, self._tensors, self._is_done = groups.over, None, b"", [], True
        offers = [pickle.loads(word) for word in words if word]
        self.position = max((one[0] for one in offers), default=None)
        if self.position is None or position is not None and self.position <= position:
            return
        best = max(one[:2] for one in offers)
        newest = [one for one in offers if one[:2] == best]
        self._is_done = False
        threading.Thread(target=self._run, args=newest[rank % len(newest)][2:], name="ddprun fetch", daemon=True).start()

    def result(self):
        """The state; None: there is none that is newer than this rank's, or it didn't come. Waits, but not longer than the generation
        lasts."""
        self._over.wait(lambda over: self._is_done or over.why)
        if self._is_done:
            return unpacked(self._text, self._tensors) if self._text else None
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        return None

    def _run(self, address, secret):
        try:
            with connected(address, secret, _CONNECT_SECONDS) as connection:
                self._connection = connection
                text, shapes = (received(connection, size) for size in _LENGTHS.unpack(received(connection, _LENGTHS.size)))
                self._tensors = empty_like(shapes)
                for tensor in self._tensors:
                    receive_into(connection, bytes_of(tensor))
                self._text = text
        except Exception:
            pass  # the giver has ended, or can't be reached, or memory is short: the state comes after the notes
        finally:
            self._is_done = True
            self._over.wake()


def exchange(membership, position, offered, take, note):
    """Greets the other ranks, takes the newest state that one of them offers, and exchanges notes. Returns all ranks' notes, by rank.

    position(): this rank's; None = it has no state. offered(): (its state, whether it is preferred). take(state, position): is called
    with a newer one. note(): this rank's. Raises as membership.rejoin().
    """
    def fetched(fetch):
        state = fetch.result() if fetch is not None else None
        if state is not None:
            membership.fetch = None
            take(state, fetch.position)

    fetched(membership.fetch)
    offer = None
    if position() is not None and not membership.has_greeted:
        with contextlib.suppress(OSError):
            offer = Offer(position(), *offered())
    try:
        membership.greet(offer.word if offer is not None else b"")
        fetched(Fetch(membership.offers, membership.rank, position()))
        return membership.rejoin(note())
    finally:
        if offer is not None:
            offer.close()
