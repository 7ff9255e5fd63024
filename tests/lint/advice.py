"""Each rule of the advisor has a message that was really seen, and is in the documents."""

import re

from tree import Finding

RULES = "launcher/advice/advice_rules.yaml"
MESSAGES = "tests/unit/launcher/advice/messages.txt"
DOCUMENT = "docs/LOGS.md"


def check(tree):
    """Rules without a message or a word in the documents; messages without a source or a rule."""
    if RULES not in tree:
        return [Finding(RULES, 0, "is not there: the check is broken")]
    findings = []
    rules = {}
    for number, line in tree.lines(RULES):
        name = re.match(r"- name: (\w+)$", line)
        if name and name.group(1) in rules:
            findings.append(Finding(RULES, number, f"rule {name.group(1)} is there twice"))
        elif name:
            rules[name.group(1)] = number
    seen = set()
    for number, line in tree.lines(MESSAGES) if MESSAGES in tree else ():
        if not line.startswith("== "):
            continue
        name, _, source = line[3:].partition(" | ")
        seen.add(name)
        if name not in rules:
            findings.append(Finding(MESSAGES, number, f"there is no rule {name}"))
        if not source.strip():
            findings.append(Finding(MESSAGES, number, "say behind ' | ' where the message was seen"))
    documented = set(re.findall(r"`(\w+)`", tree.text(DOCUMENT))) if DOCUMENT in tree else set()
    for name, number in rules.items():
        if name not in seen:
            findings.append(Finding(RULES, number, f"rule {name} has no message in {MESSAGES}"))
        if name not in documented:
            findings.append(Finding(RULES, number, f"rule {name} is not in {DOCUMENT}"))
    return findings
