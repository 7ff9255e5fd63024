#!/usr/bin/env python3
"""A worker for tests: meets the others in the store at MASTER_ADDR:MASTER_PORT, as torch's TCPStore clients do.

store_worker.py JOURNAL [fail=N]. Each rank finds the store without a key of its own, sets it and waits for those of all; then
it writes down where it was. `fail=N`: in the first N attempts, rank 0 then ends with 3.
The protocol is that of torch 2.2 and later: VALIDATE and PING first.
"""

import os
import socket
import struct
import sys

from worker import write_line

TIMEOUT = float(os.environ.get("STORE_TIMEOUT", "40"))


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def receive(client, size):
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise ConnectionError("the store closed the connection")
        data += more
    return data


def meet(address, port, rank, world, is_first=False):
    with socket.create_connection((address, port), timeout=TIMEOUT) as client:
        client.sendall(b"\x00" + struct.pack("<I", 0x3C85F7CE) + b"\x0d" + struct.pack("<I", os.getpid()))
        if struct.unpack("<I", receive(client, 4)) != (os.getpid(),):
            raise ConnectionError("not the answer of a store")
        client.sendall(b"\x05" + struct.pack("<Q", 1) + text(f"rank{rank}"))
        if receive(client, 1) != b"\x01" and is_first:
            raise ConnectionError("the store has keys of an older generation")
        client.sendall(b"\x01" + text(f"rank{rank}") + text("here"))
        client.sendall(b"\x06" + struct.pack("<Q", world) + b"".join(text(f"rank{other}") for other in range(world)))
        receive(client, 1)


if __name__ == "__main__":
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    meet(*where, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), is_first=True)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    write_line(sys.argv[1], "met", rank=int(os.environ["RANK"]), address=where[0], port=where[1], attempt=attempt)
    fails = int((sys.argv[2:] or ["fail=0"])[0].removeprefix("fail="))
    if os.environ["RANK"] == "0" and attempt < fails:
        sys.exit(3)
