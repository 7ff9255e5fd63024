#!/usr/bin/env python3
"""The project's lint: run.py [--root DIR] [CHECK…]; exit status 1 when something is found.

Every check is a function `check(tree) -> [Finding]`; test_lint.py shows each a bad example.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import advice  # noqa: E402
import banned  # noqa: E402
import citations  # noqa: E402
import docs  # noqa: E402
import english  # noqa: E402
import includes  # noqa: E402
import layering  # noqa: E402
import lengths  # noqa: E402
import named  # noqa: E402
import structure  # noqa: E402
from tree import Tree  # noqa: E402

CHECKS = {
    "layering": layering.check,
    "banned": banned.check,
    "lengths": lengths.check,
    "structure": structure.check,
    "includes": includes.check,
    "docs": docs.check,
    "reach": docs.check_reach,
    "advice": advice.check,
    "named": named.check,
    "citations": citations.check,
    "english": english.check,
    "shell": docs.check_scripts,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("checks", nargs="*", choices=[[], *CHECKS])
    arguments = parser.parse_args()
    tree = Tree.from_directory(os.path.abspath(arguments.root))
    findings = []
    for name in arguments.checks or CHECKS:
        found = CHECKS[name](tree)
        print(f"{name}: {len(tree.paths())} files, {len(found)} found", flush=True)
        findings += found
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
