#!/usr/bin/env python3
"""Our excerpt of etcd's protocol, held against the one that the etcd here was built with.

A program in Go holds the descriptors of its messages, compressed; so no source of etcd is needed."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
OURS = os.path.join(ROOT, "proto", "ddprun", "etcd", "rpc.proto")
SERVER = shutil.which("etcd")
GZIP = b"\x1f\x8b\x08"
DESCRIPTOR_BYTES_MAX = 1 << 20

# Numbers of fields in google/protobuf/descriptor.proto.
FILE_IN_SET = 1
NAME = 1
FILE_MESSAGES, FILE_ENUMS, FILE_SERVICES = 4, 5, 6
MESSAGE_FIELDS, MESSAGE_NESTED, MESSAGE_ENUMS, MESSAGE_ONEOFS = 2, 3, 4, 8
FIELD_NUMBER, FIELD_LABEL, FIELD_TYPE, FIELD_TYPE_NAME, FIELD_ONEOF = 3, 4, 5, 6, 9
ENUM_VALUES, VALUE_NUMBER = 2, 2
SERVICE_METHODS = 2
METHOD_INPUT, METHOD_OUTPUT, METHOD_CLIENT_STREAMS, METHOD_SERVER_STREAMS = 2, 3, 5, 6


def fields(data):
    """A message of protobuf: {number: [value, …]}; bytes, or a number."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 2:
            size = varint()
            value = data[at:at + size]
            at += size
        else:
            raise ValueError("a kind of field that descriptors don't have")
        found.setdefault(key >> 3, []).append(value)
    return found


def text(message, number):
    return message.get(number, [b""])[0].decode()


def number(message, which):
    return message.get(which, [0])[0]


def bare(type_name):
    """etcd's packages are several, ours is one."""
    return type_name.rsplit(".", 1)[-1]


def facts_of_message(message, prefix, facts):
    name = prefix + text(message, NAME)
    oneofs = [text(fields(each), NAME) for each in message.get(MESSAGE_ONEOFS, [])]
    facts[f"message {name}"] = True
    for field in map(fields, message.get(MESSAGE_FIELDS, [])):
        oneof = oneofs[field[FIELD_ONEOF][0]] if FIELD_ONEOF in field else ""
        facts[f"field {name}.{text(field, NAME)}"] = (number(field, FIELD_NUMBER), number(field, FIELD_LABEL),
                                                      number(field, FIELD_TYPE), bare(text(field, FIELD_TYPE_NAME)), oneof)
    for nested in map(fields, message.get(MESSAGE_NESTED, [])):
        facts_of_message(nested, f"{name}.", facts)
    for enum in map(fields, message.get(MESSAGE_ENUMS, [])):
        facts_of_enum(enum, f"{name}.", facts)


def facts_of_enum(enum, prefix, facts):
    for value in map(fields, enum.get(ENUM_VALUES, [])):
        facts[f"value {prefix}{text(enum, NAME)}.{text(value, NAME)}"] = number(value, VALUE_NUMBER)


def facts_of(file):
    """What counts on the wire, by name."""
    facts = {}
    for message in map(fields, file.get(FILE_MESSAGES, [])):
        facts_of_message(message, "", facts)
    for enum in map(fields, file.get(FILE_ENUMS, [])):
        facts_of_enum(enum, "", facts)
    for service in map(fields, file.get(FILE_SERVICES, [])):
        for method in map(fields, service.get(SERVICE_METHODS, [])):
            facts[f"method {text(service, NAME)}.{text(method, NAME)}"] = (
                bare(text(method, METHOD_INPUT)), bare(text(method, METHOD_OUTPUT)), number(method, METHOD_CLIENT_STREAMS),
                number(method, METHOD_SERVER_STREAMS))
    return facts


def our_facts(source):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "rpc.proto"), "w", encoding="utf-8") as copy:
            copy.write(source)
        out = os.path.join(folder, "out")
        subprocess.run(["protoc", f"-I{folder}", f"--descriptor_set_out={out}", "rpc.proto"], check=True, timeout=60)
        with open(out, "rb") as compiled:
            return facts_of(fields(fields(compiled.read())[FILE_IN_SET][0]))


def their_facts():
    with open(SERVER, "rb") as program:
        data = program.read()
    facts, at = {}, data.find(GZIP)
    while at >= 0:
        try:
            descriptor = zlib.decompressobj(wbits=31).decompress(data[at:at + DESCRIPTOR_BYTES_MAX], DESCRIPTOR_BYTES_MAX)
            file = fields(descriptor) if descriptor.startswith(b"\n") else {}
        except (zlib.error, ValueError, IndexError):
            file = {}
        if file and text(file, NAME) in ("rpc.proto", "kv.proto"):
            facts.update(facts_of(file))
        at = data.find(GZIP, at + 1)
    return facts


def differences(ours, theirs):
    return [f"{name}: {fact}, in etcd {theirs.get(name)}" for name, fact in sorted(ours.items()) if theirs.get(name) != fact]


@unittest.skipUnless(SERVER, "there is no etcd here (Debian's etcd-server)")
@unittest.skipUnless(shutil.which("protoc"), "there is no protoc here (Debian's protobuf-compiler)")
class Protocol(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.theirs = their_facts()
        with open(OURS, encoding="utf-8") as source:
            cls.source = source.read()

    def test_ours_is_etcds(self):
        ours = our_facts(self.source)
        self.assertGreater(len(ours), 100)
        self.assertEqual([], differences(ours, self.theirs))

    def test_twins_with_a_mistake(self):
        for right, wrong in (("int64 lease = 6;", "int64 lease = 7;"), ("int64 TTL = 1;", "int32 TTL = 1;"),
                             ("repeated KeyValue kvs = 2;", "KeyValue kvs = 2;"), ("CREATE = 1;", "CREATION = 1;"),
                             ("bool succeeded = 2;", "bool success = 2;"), ("MOD = 2;", "MOD = 5;"),
                             ("returns (stream WatchResponse)", "returns (WatchResponse)"),
                             ("rpc LeaseRevoke(LeaseRevokeRequest)", "rpc LeaseRevoke(LeaseGrantRequest)")):
            self.assertIn(right, self.source)
            self.assertEqual(1, len(differences(our_facts(self.source.replace(right, wrong, 1)), self.theirs)), wrong)


if __name__ == "__main__":
    unittest.main(verbosity=2)
