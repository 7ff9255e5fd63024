"""Connections between ranks beside their process groups: TCP, with a secret that the ranks have exchanged."""

import hmac
import os
import socket

_SECRET_BYTES = 32
_STRANGER_SECONDS = 20.0


def new_secret():
    return os.urandom(_SECRET_BYTES)


def connected(address, secret, seconds):
    """A connection to a peer. OSError: there is none within so many seconds."""
    connection = socket.create_connection(address, seconds)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(secret)
    return connection


def knows(connection, secret):
    """Whether the peer sends the secret. OSError: it sends nothing."""
    connection.settimeout(_STRANGER_SECONDS)
    told = received(connection, _SECRET_BYTES)
    connection.settimeout(None)
    return hmac.compare_digest(told, secret)


def received(connection, size):
    data = bytearray(size)
    receive_into(connection, memoryview(data))
    return bytes(data)


def receive_into(connection, memory):
    """Fills the memory. OSError: the peer has ended."""
    while memory:
        size = connection.recv_into(memory)
        if size == 0:
            raise ConnectionResetError("connection closed by the peer")
        memory = memory[size:]
