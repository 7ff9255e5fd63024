#!/usr/bin/env python3
"""docs/TORCHRUN.md holds what it says: each pain of torchrun has tests that exist, or a reason, in pains.txt."""

import glob
import importlib
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import contract  # noqa: E402
import jobs  # noqa: E402

PAGE = os.path.join(jobs.ROOT, "docs", "TORCHRUN.md")
SHOWN_BY = os.path.join(jobs.HERE, "pains.txt")
_ROW = re.compile(r"^\| (\d+) \| .+ \| .+ \|$", re.MULTILINE)
_SHOWN = re.compile(r"^(\d+) (.+)$", re.MULTILINE)
_NAME = re.compile(r"([\w/]+)(?:::(\w+))?(?:\s|$)")
_WHY_NOT = "no test: "


def pains():
    """The numbers of the page's rows."""
    with open(PAGE, encoding="utf-8") as source:
        return [int(number) for number in _ROW.findall(source.read())]


def rows():
    """{number: (names of tests, whole line of pains.txt)}"""
    with open(SHOWN_BY, encoding="utf-8") as source:
        return {int(number): ([] if shown.startswith(_WHY_NOT) else _NAME.findall(shown), shown)
                for number, shown in _SHOWN.findall(source.read())}


def contract_tests():
    """{"contract/<file>": {test: method}}; rows of tables are tests only once the module is loaded."""
    found = {}
    for path in glob.glob(os.path.join(jobs.HERE, "*_test.py")):
        stem = os.path.basename(path).removesuffix(".py")
        module = importlib.import_module(stem)
        found["contract/" + stem] = {
            name: getattr(case, name) for case in vars(module).values()
            if isinstance(case, type) and issubclass(case, unittest.TestCase) for name in dir(case) if name.startswith("test_")}
    return found


def why_missing(file, name, loaded):
    """'' when this test exists, else what is wrong."""
    if file in loaded:
        return "" if name in loaded[file] else f"{file} has no {name}"
    base = os.path.join(jobs.ROOT, "tests", file)
    path = next((base + suffix for suffix in (".py", ".cc", ".txt") if os.path.exists(base + suffix)), None)
    if path is None:
        return f"no such file: tests/{file}"
    with open(path, encoding="utf-8") as source:
        text = source.read()
    if path.endswith(".txt"):
        return "" if not name else f"{file} is a script without names"
    pattern = rf"def {name}\(" if path.endswith(".py") else rf"\(\w+,\s*{name}\)"
    return "" if name and re.search(pattern, text) else f"{file} has no {name or '(a test must be named)'}"


class Pains(unittest.TestCase):
    def test_every_pain_is_there_once(self):
        self.assertEqual(list(range(1, contract.PAINS + 1)), pains())
        self.assertEqual(pains(), list(rows()))

    def test_each_has_a_test_or_a_reason(self):
        for number, (names, shown) in rows().items():
            self.assertTrue(names or shown.startswith(_WHY_NOT), f"pain {number}: neither a test nor '{_WHY_NOT}…'")

    def test_the_tests_exist(self):
        loaded = contract_tests()
        wrong = [f"pain {number}: {why}" for number, (names, _) in rows().items() for file, name in names
                 if (why := why_missing(file, name, loaded))]
        self.assertEqual([], wrong)

    def test_a_missing_one_is_found(self):
        """Negative control: names that lead nowhere."""
        loaded = contract_tests()
        for file, name in (("contract/cli_test", "test_nothing"), ("unit/no_such_test", "X"), ("sim/nothing", ""),
                           ("e2e/signals_test", "test_nothing"), ("e2e/signals_test", "")):
            self.assertTrue(why_missing(file, name, loaded), (file, name))

    def test_what_claims_a_cure_is_listed(self):
        page = rows()
        for file, tests in contract_tests().items():
            for name, method in tests.items():
                differs = getattr(method, "differs", None)
                for pain in differs.pains if differs else ():
                    # Every refusal cures 51.
                    listed = (file, name) in page[pain][0] or pain == 51
                    self.assertTrue(listed, f"pain {pain} lacks {file}::{name}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
