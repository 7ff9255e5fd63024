#!/usr/bin/env python3
"""The pictures of the documents are what their records give now (scripts/pictures), and can be read."""

import json
import os
import re
import shutil
import sys
import tempfile
import unittest
import xml.dom.minidom

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import bars_svg  # noqa: E402
import pictures  # noqa: E402
import terminal_svg  # noqa: E402


def words_of(svg):
    """The text of a picture, which is well-formed."""
    texts = xml.dom.minidom.parseString(svg).getElementsByTagName("text")
    return " ".join(text.firstChild.data for text in texts if text.firstChild)


class Fresh(unittest.TestCase):
    def test_all(self):
        self.assertEqual([], pictures.stale(), "scripts/pictures remakes them")

    def test_another_record_is_noticed(self):
        """Negative control: what is drawn from a record that was changed is stale, and nothing else is."""
        folder = tempfile.mkdtemp(prefix="ddprun-pictures-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        shutil.copytree(pictures.FOLDER, folder, dirs_exist_ok=True)
        with open(os.path.join(folder, "demo.txt"), "a", encoding="utf-8") as sink:
            sink.write("one line more\n")
        self.assertEqual(["demo.svg"], pictures.stale(folder))
        status = json.loads(pictures.read(folder, "job.json"))
        status["jobs"][0]["nodes"][0]["workers"][0]["step"] = "7113"
        with open(os.path.join(folder, "job.json"), "w", encoding="utf-8") as sink:
            json.dump(status, sink)
        pages = [pictures.page_name(width, theme) for width, theme in pictures.PAGES]
        tops = [f"top-{columns}.svg" for columns, _ in pictures.TOP_SIZES]
        self.assertEqual({"demo.svg", *tops, *pages}, set(pictures.stale(folder)))

    def test_every_picture_is_drawn_and_shown(self):
        drawn = {*pictures.drawings(), *(pictures.page_name(width, theme) for width, theme in pictures.PAGES)}
        there = {name for name in os.listdir(pictures.FOLDER) if name.endswith((".svg", ".png"))}
        self.assertEqual(drawn, there)
        shown = re.findall(r"!\[[^\]]+\]\(docs/pictures/([\w.-]+)\)", pictures.read(ROOT, "README.md"))
        self.assertGreaterEqual(len(shown), 2)
        self.assertIn("demo.svg", shown)
        self.assertTrue(any(name.startswith("top-") for name in shown), shown)
        self.assertLessEqual(set(shown), there)


class Content(unittest.TestCase):
    def test_top_shows_the_job(self):
        for columns, rows in pictures.TOP_SIZES:
            words = words_of(pictures.top(pictures.FOLDER, columns, rows))
            for word in ("gpt-7b", "RANK", "7114", "7109"):
                self.assertIn(word, words, columns)

    def test_the_demo_tells_its_story(self):
        words = words_of(pictures.demo(pictures.FOLDER))
        for step in ("FAULT: the worker", "FAULT: node b", "noticed after", "training goes on", "nothing is left behind",
                     "Final accuracy"):
            self.assertIn(step, words)

    def test_the_figure_has_the_benchmarks_numbers(self):
        words = words_of(pictures.recovery(pictures.FOLDER))
        record = json.loads(pictures.read(pictures.FOLDER, "recovery.json"))
        for name in ("ddprun --warm off", "torchrun", record["date"]):
            self.assertIn(name, words)
        svg = pictures.recovery(pictures.FOLDER)
        self.assertEqual(sum(len(record["seconds"][way]["kill"]) for way in ("warm", "cold", "torchrun")), svg.count("<circle"))

    def test_light_and_dark(self):
        """A terminal brings its own ground; bars and their ground change with the theme together."""
        svg = terminal_svg.draw("x", "t", 1, "l")
        self.assertIn(f'fill="{terminal_svg.GROUND}"', svg)
        self.assertNotIn("prefers-color-scheme", svg)
        bars = bars_svg.draw("t", "n", [("a", True, [1.0])], "l")
        dark = bars[bars.index("prefers-color-scheme:dark"):]
        for kind in (".ground", ".text", ".faint", ".ours"):
            self.assertIn(kind + "{fill", dark)


class Terminal(unittest.TestCase):
    def test_styles(self):
        rows = terminal_svg.rows_of("\x1b[Ha\x1b[7mb\x1b[0m\x1b[K\n\x1b[1;31mc\x1b[J")
        plain = terminal_svg.PLAIN
        self.assertEqual([[(plain, "a"), ((None, None, False, True), "b")]], rows[:1])
        self.assertEqual([(("#ff7b72", None, True, False), "c")], rows[1])

    def test_what_is_not_known_is_an_error(self):
        for text in ("\x1b[3A", "\x1b[38;5;9mx", "\x1b(B"):
            with self.assertRaises(terminal_svg.UnknownSequence):
                terminal_svg.rows_of(text)

    def test_markup_is_text(self):
        self.assertIn("a<b & c", words_of(terminal_svg.draw("a<b & c", "<t>", 1, 'l"')))


if __name__ == "__main__":
    unittest.main(verbosity=2)
