#!/usr/bin/env python3
"""How many of the 99 checks hold: runs after the other files and sums up what they wrote."""

import glob
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402


def results():
    """{check: (held, compared with torchrun or its record)} over all files."""
    found = {}
    for path in glob.glob(os.path.join(contract.RESULTS, "*.json")):
        with open(path, encoding="utf-8") as source:
            for number, entry in json.load(source)["checks"].items():
                held, compared = found.get(int(number), (True, False))
                found[int(number)] = (held and entry["held"], compared or entry["compared"])
    return found


class Summary(unittest.TestCase):
    def test_every_check_holds(self):
        found = results()
        held = {number for number, (holds, _) in found.items() if holds}
        compared = {number for number, (_, compares) in found.items() if compares}
        torchruns = " and ".join(torchrun.name for torchrun in contract.TORCHRUNS)
        beside = f"{torchruns} and their records" if contract.WHOLE_RUN else f"the records of {torchruns}"
        print(f"\nsummary: {len(held)} of {contract.CHECKS} checks hold, {len(compared)} of them beside {beside}", flush=True)
        every = set(range(1, contract.CHECKS + 1))
        self.assertEqual(set(), every - held, "checks without a test, or with a test that failed")


if __name__ == "__main__":
    unittest.main(verbosity=2)
