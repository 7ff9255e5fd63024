#!/usr/bin/env python3
"""message_fields.py OUT PROTO MESSAGE [PROTO MESSAGE …]: writes a header with a function VisitFields(message, to) for each MESSAGE
of a .proto file and all messages that it has as fields: it calls to->Add(name, value) for each field, in the file's order, and
leaves out what is optional and absent. So a program needs no reflection, which Protobuf's smaller runtime lacks."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts", "lib"))

from proto_fields import fields  # noqa: E402

SCALARS = ("bool", "double", "string", "uint32", "uint64")


def functions(proto, root):
    """The lines for one message of a file and those that it has."""
    with open(proto, encoding="utf-8") as source:
        text = source.read()
    package = re.search(r"^package ([\w.]+);", text, re.MULTILINE).group(1).replace(".", "::")
    of, wanted = {}, [root]
    for (owner, _), (kind, name) in fields(text)[0].items():
        of.setdefault(owner, []).append((kind, name))
    lines = [f"namespace {package} {{"]
    for message in wanted:  # grows
        if re.search(rf"^message {message} {{(?:(?!^}}).)*^  oneof ", text, re.MULTILINE | re.DOTALL):
            sys.exit(f"{proto}: {message} has a oneof: teach {__file__} that")
        lines += ["template <class To>", f"void VisitFields(const {message}& message, To* to) {{"]
        for kind, name in of[message]:
            *label, kind = kind.split()
            is_message = kind in of
            if not is_message and (kind not in SCALARS or (label == ["repeated"] and kind != "string")):
                sys.exit(f"{proto}: {message}.{name}: {' '.join([*label, kind])}: teach {__file__} this type")
            if is_message and kind not in wanted:
                wanted.append(kind)
            condition = f"if (message.has_{name}()) " if label == ["optional"] or (is_message and not label) else ""
            lines.append(f'  {condition}to->Add("{name}", message.{name}());')
        lines.append("}")
    return [*lines, f"}}  // namespace {package}"]


def main():
    out, *words = sys.argv[1:]
    lines = [line for proto, root in zip(words[::2], words[1::2]) for line in functions(proto, root)]
    with open(out, "w", encoding="utf-8") as sink:
        sink.write("// Made by cmake/message_fields.py.\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
