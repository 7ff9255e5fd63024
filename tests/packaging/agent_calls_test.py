#!/usr/bin/env python3
"""ddprun.agent, a client of gRPC in the standard library: beside gRPC's own server in a real agent, and with answers that no
server should give."""

import os
import random
import socket
import struct
import sys
import threading
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests", "support")]

from bed import BedTestCase  # noqa: E402
from ddprun import grpc_channel  # noqa: E402
from ddprun.agent import Agent, RpcError  # noqa: E402
from seeds import drawn_seed  # noqa: E402

CALLS = """
import os, sys, threading, json
from ddprun.agent import Agent, RpcError
agent = Agent.of_environment()
rank, store = int(os.environ["RANK"]), agent.store(int(os.environ["DDPRUN_GENERATION"]))
keys = [f"rank{one}" for one in range(2)]
assert store.gather(keys, 20, keys[rank], b"%d" % rank) == [b"0", b"1"]
def refused(call, *arguments):
    try:
        call(*arguments)
    except RpcError as error:
        return error.code
large = os.urandom(15 << 20)
store.set(f"large{rank}", large)
for _ in range(20):  # more than a connection's window
    assert store.gather([f"large{rank}"], 20) == [large]
name = f"n{rank}"
assert (store.add(name, -5), store.add(name, 3), store.add(name, 1 << 62)) == (-5, -2, (1 << 62) - 2)
assert store.check([name]) and not store.check([name, "no"])
assert store.delete(name) and not store.delete(name)
assert store.compare_set(name, b"", b"a") == b"a" and store.compare_set(name, b"x", b"b") == b"a"
assert store.count() >= 4
assert refused(store.wait, ["no"], 0.05) == 4 and refused(store.set, "k" * 5000, b"") == 8 and refused(store.set, "", b"") == 3
assert refused(agent.store(99).count) is not None
assert agent.assignment(0, 5).rank == rank and refused(agent.assignment, 1, 0.05) == 4
path, size = agent.keep_memory(1, 5000)
assert size == 5000 and os.stat(path).st_size == 5000 and agent.keep_memory(1, 0) == (path, size)
assert agent.keep_memory(2, 0) == ("", 0)
assert refused(agent.keep_memory, 48, 1) == 3 and refused(agent.keep_memory, 0, 1 << 60) == 8
# Calls that wait keep nobody waiting.
waiting = [threading.Thread(target=store.wait, args=([f"late{rank}"], 20)) for _ in range(8)]
for thread in waiting:
    thread.start()
for number in range(50):
    store.set(f"number{rank}", b"%d" % number)
pid = os.fork()
if pid == 0:  # a child has connections of its own
    os._exit(0 if store.gather([f"number{rank}"], 5) == [b"49"] else 1)
assert os.waitpid(pid, 0)[1] == 0
store.set(f"late{rank}", b"")
for thread in waiting:
    thread.join()
print("rank", rank, "is done")
"""


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name, value):
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def answer(message, status=b"0", text=b""):
    """What gRPC's server sends: settings, headers, the message, trailers."""
    return [frame(4, 0, 0, struct.pack(">HI", 5, 32768)), frame(4, 1, 0), frame(6, 0, 0, bytes(8)),
            frame(1, 4, 1, b"\x88" + literal(b"content-type", b"application/grpc")),
            frame(0, 0, 1, b"\0" + struct.pack(">I", len(message)) + message),
            frame(1, 5, 1, literal(b"grpc-status", status) + literal(b"grpc-message", text))]


class Server:
    """Gives each connection the next of its answers, and ends it."""

    def __init__(self, path):
        self.answers = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(20)
                try:
                    connection.sendall(self.answers.pop(0))
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except OSError:
                    pass  # the client has seen enough

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


class Calls(BedTestCase):
    def test_beside_grpcs_own_server(self):
        script = self.bed.write("calls.py", CALLS)
        job = self.bed.run("job", ["--nproc_per_node", 2, script], env={"PYTHONPATH": os.path.join(ROOT, "python")})
        self.assert_status(0, job)
        self.assertEqual(2, job.text().count("is done"))

    def call(self, server, data):
        server.answers.append(data)
        channel = grpc_channel.Channel(self.path)
        try:
            return channel.call("/a/B", b"hello", 30)
        finally:
            channel.release()

    def serve(self):
        self.path = self.bed.path("socket")
        server = Server(self.path)
        self.addCleanup(server.close)
        return server

    def test_answers(self):
        server = self.serve()
        self.assertEqual(b"reply", self.call(server, b"".join(answer(b"reply"))))
        parts = answer(b"reply")
        head = frame(1, 0, 1, b"\x88") + frame(9, 4, 1, literal(b"x", b"y"))  # headers in two frames
        padded = frame(0, 8, 1, b"\x03" + b"\0\0\0\0\x05reply" + bytes(3))
        self.assertEqual(b"reply", self.call(server, b"".join([*parts[:3], head, padded, parts[5]])))
        for data, code, text in (
                (b"".join(answer(b"", b"10", b"the job%20is over %E2%80%A6")), 10, "the job is over …"),
                (parts[0] + frame(3, 0, 1, struct.pack(">I", 8)), 1, "HTTP/2 error 8"),
                (parts[0] + frame(7, 0, 0, bytes(8)), 14, "closes the connection"),
                (b"".join(parts[:5]), 14, "has ended"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", 13, "no gRPC"),
                (b"".join([*parts[:4], parts[5]]), 13, "no single message")):
            with self.assertRaises(RpcError) as raised:
                self.call(server, data)
            self.assertEqual(code, raised.exception.code, data)
            self.assertIn(text, str(raised.exception))

    def test_any_bytes(self):
        """End in an answer, or in an RpcError that says so, at once."""
        seed = drawn_seed()
        random_ = random.Random(seed)
        server = self.serve()
        answered = 0
        for _ in range(3000):
            parts = answer(random_.randbytes(random_.randrange(40)), random_.choice((b"0", b"0", b"13", b"x")))
            if random_.random() < 0.3:
                parts.insert(random_.randrange(6), random_.choice(parts))
            data = bytearray(b"".join(parts))
            for _ in range(random_.randrange(4)):
                data[random_.randrange(len(data))] = random_.randrange(256)
            if random_.random() < 0.2:
                del data[random_.randrange(len(data)):]
            try:
                self.call(server, bytes(data))
                answered += 1
            except RpcError:
                pass
            except Exception as error:
                raise AssertionError(f"seed {seed}: {bytes(data)!r}") from error
        self.assertGreater(answered, 300)

    def test_ended_by_another_thread(self):
        path = self.bed.path("silent")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(1)
            channel = grpc_channel.Channel(path)
            connection, _ = listening.accept()
            threading.Thread(target=lambda: (connection.recv(1 << 16, socket.MSG_PEEK), channel.close())).start()
            with self.assertRaises(RpcError) as raised:
                channel.call("/a/B", b"")
            self.assertEqual(grpc_channel.CANCELLED, raised.exception.code)
            channel.release()
            connection.close()

    def test_nobody_is_there(self):
        with self.assertRaises(RpcError) as raised:
            Agent(self.bed.path("nothing"), "job", 0).assignment(0, 1)
        self.assertEqual(grpc_channel.UNAVAILABLE, raised.exception.code)
        self.assertIn("No such file", str(raised.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)
