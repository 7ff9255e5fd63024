"""Unary gRPC calls over a unix socket, in nothing but the standard library.

A worker makes a few calls to the agent of its node. grpcio would cost 19 MB and 120 ms of import in each worker, and a wheel for
each version of Python. One connection here has one call at a time, so HTTP/2 (RFC 9113) needs little: no multiplexing, no
priorities, and a header table of size 0 (RFC 7541, 4.2), so that nothing of the peer's headers has to be remembered.

A call's bytes, for the message b"\\x08\\x02":

    HEADERS  flags END_HEADERS  stream 1   :method POST, :path /ddprun.agent.v1.Agent/GetAssignment, ...
    DATA     flags END_STREAM   stream 1   00 | 00 00 00 02 | 08 02     (not compressed, length, message)
    <- HEADERS :status 200    <- DATA the reply    <- HEADERS END_STREAM grpc-status 0
"""

import socket
import struct
import time
import urllib.parse

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 0x20
_TABLE_SIZE, _PUSH, _STREAM_WINDOW, _FRAME_SIZE = 1, 2, 4, 5  # settings
_WINDOW_MAX = 0x7FFFFFFF
_WINDOW_DEFAULT = 65535
_FRAME_DEFAULT = 16384
_FRAME_LIMIT = 1 << 24
# A reply of the agent has 16 MiB of values at most (docs/PROTOCOL.md, W8), and some bytes a key.
_REPLY_MAX = 24 << 20
_HEADERS_MAX = 1 << 20
# A server may close a connection without calls at any time; the agent does after 30 s (rendezvous/wire/grpc_settings.h). A call
# that is sent at that moment fails, and it is unknown whether the server has seen it.
_IDLE_SECONDS = 10
# RFC 7541, appendix A: the entries of the static table that servers use.
_STATIC = {8: (b":status", b"200"), 9: (b":status", b"204"), 10: (b":status", b"206"), 11: (b":status", b"304"),
           12: (b":status", b"400"), 13: (b":status", b"404"), 14: (b":status", b"500"), 31: (b"content-type", b"")}

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED = 0, 1, 2, 3, 4
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, INTERNAL, UNAVAILABLE = 7, 8, 9, 10, 13, 14


class RpcError(RuntimeError):
    """A call that failed. code: gRPC's status code; text: what the server, or the connection, says."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


def varint(number):
    """An unsigned number of up to 64 bits as Protobuf has it: seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data, at):
    """(the number at data[at], where the next thing begins). ValueError: it has more than 10 bytes."""
    result = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise ValueError("a number of more than 64 bits")


def _frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _text(value):
    """A string of a header block, not Huffman-coded: its length with a prefix of seven bits (RFC 7541, 5.2)."""
    data = value.encode()
    return (bytes((len(data),)) if len(data) < 127 else b"\x7f" + varint(len(data) - 127)) + data


def _request_headers(method, seconds):
    headers = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"),
               ("content-type", "application/grpc"), ("te", "trailers")]
    if seconds is not None:
        headers.append(("grpc-timeout", f"{min(max(int(seconds * 1000), 1), 99999999)}m"))
    return b"".join(b"\x10" + _text(name) + _text(value) for name, value in headers)


class _HeaderBlock:
    """Reads the header fields of a block; skips Huffman-coded names and values, and those in a table, which aren't needed."""

    def __init__(self, data):
        self._data, self._at = data, 0

    def fields(self):
        found = {}
        while self._at < len(self._data):
            first = self._data[self._at]
            if first & 0x80:
                name, value = _STATIC.get(self._integer(7), (b"", b""))
            elif first & 0xE0 == 0x20:
                self._integer(5)
                continue
            else:
                index = self._integer(6 if first & 0x40 else 4)
                name = _STATIC.get(index, (b"", b""))[0] if index else self._string()
                value = self._string()
            found[name] = value
        return found

    def _integer(self, prefix):
        most = (1 << prefix) - 1
        value = self._data[self._at] & most
        self._at += 1
        if value < most:
            return value
        more, self._at = read_varint(self._data, self._at)
        return value + more

    def _string(self):
        is_huffman = self._data[self._at] & 0x80
        size = self._integer(7)
        value = self._data[self._at:self._at + size]
        if len(value) < size:
            raise ValueError("a header that is cut off")
        self._at += size
        return b"" if is_huffman else bytes(value)


def _without_padding(flags, payload):
    if not flags & _PADDED:
        return payload
    if payload[0] >= len(payload):
        raise ValueError("a frame with more padding than it is long")
    return payload[1:len(payload) - payload[0]]


class Channel:
    """One connection to a server at a unix socket, and one call at a time.

    Threads: call() from one at a time; close() from any, and then a call that waits fails with CANCELLED.
    """

    def __init__(self, path):
        """RpcError UNAVAILABLE: no process listens there."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._closed = False
        self._buffer = bytearray()
        self._next_stream = 1
        self._window, self._stream_window, self._frame_size = _WINDOW_DEFAULT, _WINDOW_DEFAULT, _FRAME_DEFAULT
        self._eaten = 0
        self._call = self._deadline = self._used = None
        settings = struct.pack(">HIHIHI", _TABLE_SIZE, 0, _PUSH, 0, _STREAM_WINDOW, _WINDOW_MAX)
        try:
            self._socket.connect(path)
            self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, settings) +
                                 _frame(_WINDOW, 0, 0, struct.pack(">I", _WINDOW_MAX - _WINDOW_DEFAULT)))
        except OSError as error:
            self._socket.close()
            raise RpcError(UNAVAILABLE, f"{path}: {error.strerror}") from None

    def close(self):
        self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server was first

    def release(self):
        """Closes the descriptor. Called by the thread that makes the calls, between two calls."""
        self._closed = True
        self._socket.close()

    def is_open(self):
        """Whether the channel can be called once more. Between two calls."""
        if self._closed or self._call is not None and not self._call.has_ended:
            return False
        if self._used is not None and time.monotonic() - self._used >= _IDLE_SECONDS:
            return False
        try:
            self._socket.setblocking(False)
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def call(self, method, message, seconds=None, on_sent=None):
        """Sends a message and returns the reply's bytes.

        method: "/package.Service/Method". seconds: the server's deadline, and this side's, 5 s later; None = none. on_sent: is
        called when the message is on its way.
        RpcError: the server's status; UNAVAILABLE: the connection has ended; DEADLINE_EXCEEDED: the server did not answer in time;
        INTERNAL: the answer isn't gRPC; CANCELLED: close(). After any error but the server's own the channel can't be used again.
        """
        self._deadline = None if seconds is None else time.monotonic() + seconds + 5
        self._call = _Call(self._next_stream)
        self._next_stream += 2
        try:
            self._socket.settimeout(None if seconds is None else seconds + 5)
            self._socket.sendall(_frame(_HEADERS, _END_HEADERS, self._call.stream, _request_headers(method, seconds)))
            self._send(b"\0" + struct.pack(">I", len(message)) + message)
            if on_sent is not None:
                on_sent()
            while not self._call.has_ended:
                self._receive()
            self._used = time.monotonic()
            return self._call.result()
        except socket.timeout:
            raise self._broken(DEADLINE_EXCEEDED, f"no answer within {seconds:g}s") from None
        except OSError as error:
            raise self._broken(UNAVAILABLE, error.strerror or str(error)) from None
        except (ValueError, IndexError, struct.error) as error:
            raise self._broken(INTERNAL, f"the answer is no gRPC: {error}") from None

    def _broken(self, code, text):
        was_closed = self._closed
        self.close()
        return RpcError(CANCELLED, "the call was given up") if was_closed else RpcError(code, text)

    def _send(self, data):
        """Sends data in frames, as far as the server's windows allow (RFC 9113, 6.9)."""
        at = 0
        self._call.window = self._stream_window
        while not self._call.has_ended:
            size = min(len(data) - at, self._frame_size, self._window, self._call.window)
            if size <= 0:
                self._receive()
                continue
            is_last = at + size == len(data)
            self._socket.sendall(_frame(_DATA, _END_STREAM if is_last else 0, self._call.stream, data[at:at + size]))
            self._window -= size
            self._call.window -= size
            at += size
            if is_last:
                return

    def _read(self, count):
        while len(self._buffer) < count:
            if self._deadline is not None:
                self._socket.settimeout(max(self._deadline - time.monotonic(), 0.001))
            data = self._socket.recv(max(65536, count - len(self._buffer)))
            if not data:
                raise ConnectionError("the connection has ended")
            self._buffer += data
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _receive(self):
        """Reads one frame, and acts on it."""
        head = self._read(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big") & _WINDOW_MAX
        if size > _FRAME_DEFAULT:
            raise ValueError(f"a frame of {size} bytes")
        payload = self._read(size)
        if kind == _SETTINGS and not flags & _ACK:
            self._apply(payload)
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY:
            raise ConnectionError("the server closes the connection")
        elif kind == _WINDOW:
            more = struct.unpack(">I", payload)[0] & _WINDOW_MAX
            if stream == 0:
                self._window += more
            elif stream == self._call.stream:
                self._call.window += more
        elif kind == _DATA:
            self._eat(size)
            if stream == self._call.stream:
                self._call.take_data(flags, _without_padding(flags, payload))
        elif stream == self._call.stream and kind in (_HEADERS, _CONTINUATION):
            if kind == _HEADERS:
                payload = _without_padding(flags, payload)[5 if flags & _PRIORITY else 0:]
            self._call.take_headers(kind, flags, payload)
        elif stream == self._call.stream and kind == _RESET:
            self._call.reset(struct.unpack(">I", payload)[0])

    def _eat(self, count):
        """Lets the server send as many bytes again (WINDOW_UPDATE)."""
        self._eaten += count
        if self._eaten >= 1 << 20:
            self._socket.sendall(_frame(_WINDOW, 0, 0, struct.pack(">I", self._eaten)))
            self._eaten = 0

    def _apply(self, payload):
        if len(payload) % 6:
            raise ValueError("settings of a strange length")
        for name, value in struct.iter_unpack(">HI", payload):
            if name == _STREAM_WINDOW:
                self._call.window += value - self._stream_window
                self._stream_window = value
            elif name == _FRAME_SIZE:
                self._frame_size = min(max(value, _FRAME_DEFAULT), _FRAME_LIMIT)


class _Call:
    """The part of a call's answer that has arrived."""

    def __init__(self, stream):
        self.stream, self.window, self.has_ended = stream, _WINDOW_DEFAULT, False
        self._data, self._block, self._said, self._ends = bytearray(), bytearray(), {}, False

    def take_data(self, flags, payload):
        self._data += payload
        if len(self._data) > _REPLY_MAX:
            raise ValueError(f"a reply of more than {_REPLY_MAX} bytes")
        self.has_ended = bool(flags & _END_STREAM)

    def take_headers(self, kind, flags, payload):
        if kind == _HEADERS:
            self._ends = bool(flags & _END_STREAM)
        self._block += payload
        if len(self._block) > _HEADERS_MAX:
            raise ValueError(f"headers of more than {_HEADERS_MAX} bytes")
        if flags & _END_HEADERS:
            self._said.update(_HeaderBlock(bytes(self._block)).fields())
            self._block.clear()
            self.has_ended = self._ends

    def reset(self, code):
        self._said = {b"grpc-status": b"%d" % (CANCELLED if code == 8 else INTERNAL),
                      b"grpc-message": b"the server has ended the call (HTTP/2 error %d)" % code}
        self.has_ended = True

    def result(self):
        code = int(self._said.get(b"grpc-status", b"2"))
        if code != OK:
            text = urllib.parse.unquote_to_bytes(self._said.get(b"grpc-message", b"")).decode("utf-8", "replace")
            raise RpcError(code, text or f"gRPC status {code}")
        if len(self._data) < 5 or self._data[0] != 0 or struct.unpack(">I", self._data[1:5])[0] != len(self._data) - 5:
            raise ValueError("a reply that is no single message")
        return bytes(self._data[5:])
