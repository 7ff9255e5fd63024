#!/usr/bin/env python3
"""What Prometheus would see of a status page: its counters, again and again, and whether one of them ever falls.

scrapes.py URL FILE    appends a line of JSON for each answer of URL/metrics, {series: value}; a page that doesn't answer is
asked again. It ends when it is killed.
"""

import json
import re
import sys
import threading
import urllib.request

PERIOD = 0.05  # seconds


def counters_of(text):
    """Value by series, of the families whose type is counter."""
    names = re.findall(r"^# TYPE (\w+) counter$", text, re.MULTILINE)
    return {series: float(value) for series, value in re.findall(r"^([^#\s].*) (\S+)$", text, re.MULTILINE)
            if series.partition("{")[0] in names}


class Scrapes:
    """The scrapes of one page. `command`: makes of a command one that runs where the page can be reached."""

    def __init__(self, bed, url, command=lambda words: words):
        self.path = bed.path("scrapes")
        with open(self.path, "x", encoding="utf-8"):
            bed.follower.watch(self.path)
        bed.start_process("scrapes", command([sys.executable, __file__, url, self.path]), output=bed.path("scrapes.out"))

    def answers(self):
        try:
            with open(self.path, encoding="utf-8") as lines:
                return [json.loads(line) for line in lines if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def last(self):
        """The last value of each series that was ever there."""
        return {series: value for answer in self.answers() for series, value in answer.items()}

    def falls(self):
        """(series, value, the smaller one that came later)"""
        highest, found = {}, []
        for answer in self.answers():
            for series, value in answer.items():
                if value < highest.get(series, value):
                    found.append((series, highest[series], value))
                highest[series] = value
        return found


def main():
    url, path = sys.argv[1:]
    with open(path, "a", encoding="utf-8") as lines:
        while not threading.Event().wait(PERIOD):
            try:
                with urllib.request.urlopen(url + "metrics", timeout=60) as answer:
                    text = answer.read().decode()
            except OSError:
                continue
            print(json.dumps(counters_of(text)), file=lines, flush=True)


if __name__ == "__main__":
    main()
