#!/usr/bin/env python3
"""An unauthenticated peer that calls a service and agents in many ways, and prints the answers (tests/cluster/hostile_test.py).

    hostile.py calls RUN_ID FOREIGN_TLS_DIR COUNT HOST:PORT…    COUNT calls of each kind at each port; prints JSON
    hostile.py idle COUNT HOST:PORT      holds so many connections, replaces those that end, until stdin ends; prints "there"
    hostile.py flood RUN_ID HOST:PORT…   calls, opens streams and connects as fast as it can, until stdin ends; prints "there"
"""

import base64
import contextlib
import json
import os
import random
import selectors
import socket
import ssl
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

RENDEZVOUS = "/ddprun.rendezvous.v1.Rendezvous/"
AGENT = "/ddprun.agent.v1.Agent/"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATIENCE = 2  # of a caller that gets no answer
QUIET = 0.2  # after bytes that no protocol answers


# ---------------------------------------------------------------- protobuf and HTTP/2, as far as a caller needs them

def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name, value):
    def string(words):
        words = words.encode()
        assert len(words) < 127
        return bytes([len(words)]) + words
    return b"\0" + string(name) + string(value)


def head(path, extra=()):
    return b"".join(header(*pair) for pair in ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                                               ("te", "trailers"), ("content-type", "application/grpc"), *extra))


def call(path, message, extra=(), compressed=0, length=None):
    body = bytes([compressed]) + struct.pack(">I", len(message) if length is None else length) + message
    data = b"".join(frame(0, 0, 1, body[i:i + 16000]) for i in range(0, len(body), 16000))
    return PREFACE + frame(4, 0, 0, b"") + frame(1, 4, 1, head(path, extra)) + data + frame(0, 1, 1, b"")


def converse(endpoint, sent, context=None, patience=PATIENCE):
    """All that comes back until the stream or the connection ends, or nothing comes any more."""
    got = b""
    try:
        with socket.create_connection(endpoint, PATIENCE) as plain:
            stream = context.wrap_socket(plain, server_hostname="ddprun") if context else plain
            stream.settimeout(patience)
            stream.sendall(sent)
            while chunk := stream.recv(1 << 16):
                got += chunk
                if ended(got):
                    break
            if context:
                stream.close()
    except (OSError, ssl.SSLError):
        pass
    return got


def ended(got):
    """Whether stream 1 has its last frame."""
    at = 0
    while at + 9 <= len(got):
        length, kind, flags = struct.unpack(">I", b"\0" + got[at:at + 3])[0], got[at + 3], got[at + 4]
        stream = struct.unpack(">I", got[at + 5:at + 9])[0]
        if stream == 1 and at + 9 + length <= len(got) and (kind == 3 or kind in (0, 1) and flags & 1):
            return True
        at += 9 + length
    return False


# ---------------------------------------------------------------- the kinds

def join(run_id, token=""):
    spec = number(1, 1) + number(2, 4) + number(3, 3) + text(4, "x") + number(6, 60000)
    node = text(1, "evil") + number(2, 1) + text(3, "10.77.0.3") + number(4, 1) + text(5, "default")
    body = number(1, 1) + text(3, "0.1.0") + text(4, token) + text(5, spec) + text(6, node) + number(7, 1)
    return text(1, run_id) + text(3, "evil#1") + number(4, 7) + number(5, 1) + text(10, body)


def member(run_id, term, body):
    """A message of somebody who never joined."""
    return text(1, run_id) + number(2, term) + text(3, "n2#1") + number(4, 7) + number(5, 9) + number(6, 1) + number(7, 1) + body


def kinds(run_id, foreign):
    """{name: (what is sent, the TLS it is sent with)}."""
    r, a = RENDEZVOUS, AGENT
    wrong = "wrong-" + base64.b64encode(os.urandom(9)).decode()
    junk = os.urandom(random.randrange(1, 4000))
    metadata = (("ddprun-token-bin", base64.b64encode(wrong.encode()).decode()),)
    plain = {
        "status": call(r + "GetStatus", b""),
        "status of the job": call(r + "GetStatus", text(1, run_id) + text(3, wrong)),
        "stop": call(r + "StopJob", text(1, run_id) + text(3, "evil")),
        "stop, wrong token": call(r + "StopJob", text(1, run_id) + text(2, wrong)),
        "stop all": call(r + "StopJob", text(2, wrong)),
        "drain": call(r + "DrainNode", text(1, run_id) + text(2, wrong) + text(3, "n2")),
        "drain undo": call(r + "DrainNode", text(3, "n2") + number(5, 1)),
        "events": call(r + "WatchEvents", b""),
        "events of the job": call(r + "WatchEvents", text(1, run_id) + number(3, 1) + text(4, wrong)),
        "join": call(r + "Attend", join(run_id)),
        "join, wrong token": call(r + "Attend", join(run_id, wrong)),
        "join another job": call(r + "Attend", join("other", wrong)),
        "status of another": call(r + "GetStatus", text(1, "other") + text(3, wrong)),
        "stop another": call(r + "StopJob", text(1, "other") + text(2, wrong)),
        "events of another": call(r + "WatchEvents", text(1, "other") + text(4, wrong)),
        "leave of nobody": call(r + "Attend", member(run_id, random.getrandbits(60), text(16, number(2, 1)))),
        "heartbeat of nobody": call(r + "Attend", member(run_id, 1, text(20, varint(1 << 3 | 1) + os.urandom(8)))),
        "junk message": call(r + "Attend", junk),
        "junk question": call(r + "GetStatus", junk),
        "too long": call(r + "StopJob", b"\0" * 100, length=1 << 30),
        "compressed": call(r + "StopJob", junk, extra=(("grpc-encoding", "gzip"),), compressed=1),
        "unknown call": call(r + "ForgetAll", b""),
        "logs": call(a + "ReadLogs", text(1, run_id) + text(2, wrong)),
        "logs of another": call(a + "ReadLogs", text(1, "other")),
        "store": call(a + "Store", number(1, 1) + text(2, run_id) + text(17, b"")),
        "store, wrong token": call(a + "Store", number(1, 1) + text(2, run_id) + text(10, text(1, "k") + text(2, "v")), metadata),
        "store of another": call(a + "Store", number(1, 1) + text(2, "other") + text(17, b"")),
        "assignment": call(a + "GetAssignment", number(3, 100)),
        "node state": call(a + "GetNodeState", b""),
        "HTTP/1 page": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "HTTP/1 metrics": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "HTTP/1 status": b"GET /api/v1/status HTTP/1.0\r\nAuthorization: Bearer " + wrong.encode() + b"\r\n\r\n",
        "raw bytes": junk,
        "half a preface": PREFACE[:10],
        "settings only": PREFACE + frame(4, 0, 0, b"") * 1000,
        "resets": PREFACE + frame(4, 0, 0, b"") + b"".join(
            frame(1, 5, 2 * i + 1, head(r + "GetStatus")) + frame(3, 0, 2 * i + 1, b"\0\0\0\x08") for i in range(100)),
        "half a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + junk[:20],
    }
    result = {name: (sent, None) for name, sent in plain.items()}
    for name in ("status", "stop", "join", "store"):
        result[f"{name}, TLS without a certificate"] = (plain[name], tls())
        result[f"{name}, TLS of another CA"] = (plain[name], tls(foreign))
    return result


def tls(folder=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if folder:
        context.load_cert_chain(os.path.join(folder, "node.crt"), os.path.join(folder, "node.key"))
    return context


def call_all(run_id, foreign, count, endpoints):
    names = list(kinds(run_id, foreign))

    def one(name):
        sent, context = kinds(run_id, foreign)[name]
        answers = sent.startswith(PREFACE) and name not in ("settings only", "resets", "half a preface")
        return name, b"".join(converse(endpoint, sent, context, PATIENCE if answers else QUIET) for endpoint in endpoints)

    told = {}
    with ThreadPoolExecutor(24) as pool:
        for name, got in pool.map(one, [name for name in names for _ in range(count)]):
            told.setdefault(name, []).append(got.decode("latin-1"))
    print(json.dumps(told), flush=True)


# ---------------------------------------------------------------- peers that hold idle connections

def idle(count, endpoint):
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin, selectors.EVENT_READ)
    held, made = 0, 0
    while True:
        # Opens at most 64 in a row: connections that have ended are closed in between.
        while held < count:
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(endpoint)
            waiting.register(connection, selectors.EVENT_READ)
            held, made = held + 1, made + 1
            if made == count:
                print("there", flush=True)
            if made % 64 == 0:
                break
        for key, _ in waiting.select(0 if held < count else None):
            if key.fileobj is sys.stdin:
                print(f"made {made}", flush=True)
                return
            waiting.unregister(key.fileobj)
            key.fileobj.close()
            held -= 1


# ---------------------------------------------------------------- peers that call all the time

def flood(run_id, endpoints):
    """Each in threads of its own: streams without number on a connection (at the first port), calls one after the other,
    connections."""
    over = threading.Event()
    counts = dict.fromkeys(("streams", "calls", "connections"), 0)
    open_attend = [frame(1, 4, 2 * i + 1, head(RENDEZVOUS + "Attend")) for i in range(1000)]

    def streams(endpoint):
        converse(endpoint, PREFACE + frame(4, 0, 0, b"") + b"".join(open_attend), patience=QUIET)
        counts["streams"] += len(open_attend)

    def calls(endpoint):
        wrong = os.urandom(9).hex()
        for sent in (call(RENDEZVOUS + "StopJob", text(1, run_id) + text(2, wrong)), call(RENDEZVOUS + "GetStatus", b""),
                     call(RENDEZVOUS + "Attend", join(run_id, wrong)),
                     call(AGENT + "Store", number(1, 1) + text(2, run_id) + text(17, b""))):
            converse(endpoint, sent, patience=QUIET)
            counts["calls"] += 1

    def connections(endpoint):
        held = []
        for _ in range(100):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(endpoint)
            held.append(connection)
        counts["connections"] += len(held)

    def go_on(work, endpoint):
        while not over.is_set():
            with contextlib.suppress(OSError):
                work(endpoint)

    threads = [threading.Thread(target=go_on, args=(work, endpoint), daemon=True)
               for work in (streams, calls, calls, connections) for endpoint in endpoints[:1 if work is streams else None]]
    for thread in threads:
        thread.start()
    print("there", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join(2 * PATIENCE)
    print(json.dumps(counts), flush=True)


def endpoint_of(words):
    host, port = words.rsplit(":", 1)
    return socket.gethostbyname(host), int(port)


if __name__ == "__main__":
    if sys.argv[1] == "calls":
        call_all(sys.argv[2], sys.argv[3], int(sys.argv[4]), [endpoint_of(words) for words in sys.argv[5:]])
    elif sys.argv[1] == "flood":
        flood(sys.argv[2], [endpoint_of(words) for words in sys.argv[3:]])
    else:
        idle(int(sys.argv[2]), endpoint_of(sys.argv[3]))
