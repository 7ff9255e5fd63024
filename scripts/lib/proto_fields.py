"""The fields of .proto files by their numbers, so that two releases can be compared (docs/RELEASING.md)."""

import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r"""
    (?:message|enum|oneof|service)\s+(?P<name>\w+)\s*\{
  | (?P<end>\})
  | reserved\s+(?P<reserved>[^;]*);
  | (?P<type>(?:(?:optional|repeated)\s+)?(?:map\s*<[^>]*>|[\w.]+))\s+(?P<field>\w+)\s*=\s*(?P<number>\d+)\s*(?:\[[^\]]*\])?\s*;
  | (?P<value>[A-Z]\w*)\s*=\s*(?P<of>\d+)\s*;
  | \{
""", re.VERBOSE)


def fields(text):
    """({(message or enumeration, number): (type, name)}, {(message, number) that is reserved})."""
    found, reserved, path = {}, set(), []
    for token in _TOKEN.finditer(_COMMENT.sub("", text)):
        owner = ".".join(name for name in path if name)
        if token["name"]:
            # A oneof's fields are its message's.
            path.append("" if token.group().startswith("oneof") else token["name"])
        elif token["end"]:
            path.pop()
        elif token["reserved"]:
            for low, high in re.findall(r"(\d+)(?:\s+to\s+(\d+))?", token["reserved"]):
                reserved.update((owner, number) for number in range(int(low), int(high or low) + 1))
        elif token["field"]:
            found[owner, int(token["number"])] = (" ".join(token["type"].split()), token["field"])
        elif token["value"]:
            found[owner, int(token["of"])] = ("value", token["value"])
        else:
            path.append("")
    return found, reserved


def differences(before, after):
    """What a release that sends `before` and one that reads `after` understand differently: a line each."""
    old, _ = fields(before)
    new, reserved = fields(after)
    lines = []
    for (owner, number), (kind, name) in old.items():
        now = new.get((owner, number))
        if now is None and (owner, number) not in reserved:
            lines.append(f"{owner}.{name} = {number} is gone: reserve its number")
        elif now is not None and now[0] != kind:
            lines.append(f"{owner}.{name} = {number} was {kind} and is {now[0]} {now[1]}: give the new field a new number")
        elif now is not None and kind == "value" and now[1] != name:
            lines.append(f"{owner}.{name} = {number} is {now[1]} now: give the new value a new number")
    return lines
