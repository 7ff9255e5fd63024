#!/usr/bin/env python3
"""Draws the pictures of the documents from what is recorded in docs/pictures: pictures.py [--check]

Terminals and bars are SVG: the same record gives the same bytes. The page is drawn by Chromium, which may differ from one
release to the next, so its pictures carry a checksum of what they were made from. --check says which are stale.
"""

import argparse
import functools
import hashlib
import http.server
import json
import os
import statistics
import struct
import subprocess
import sys
import threading
import zlib

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import bars_svg  # noqa: E402
import terminal_svg  # noqa: E402

DDPRUN = os.environ.get("DDPRUN_BIN", os.path.join(ROOT, "build", "release", "bin", "ddprun"))
SHOW_TOP = os.path.join(os.path.dirname(DDPRUN), "..", "tests", "show_top")
FOLDER = os.path.join(ROOT, "docs", "pictures")
PAGE_FOLDER = os.path.join(ROOT, "rendezvous", "web")
PAGE_FILES = ("page.html", "page.css", "common.js", "course.js", "nodes.js", "page.js")
# The page's data: its status and its curves.
RECORDS = ("job.json", "curves.json")
# An expression that is true when the page shows the job, with its curves.
SHOWN = "document.querySelector('.course path') !== null"
# Columns and rows of the terminals in which `ddprun top` is drawn.
TOP_SIZES = ((60, 20), (80, 20), (100, 20))
# Width in pixels, theme.
PAGES = tuple((width, theme) for width in (390, 1100) for theme in ("light", "dark"))
_CHECKSUM = b"made from"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as source:
        return source.read()


# ------------------------------------------------------------------- SVG, byte by byte


def demo(folder):
    """The recorded output of scripts/demo, as on a terminal."""
    return terminal_svg.draw("$ scripts/demo\n" + read(folder, "demo.txt").rstrip("\n"), "scripts/demo", 100,
                             "scripts/demo: a worker and a node are killed, and training goes on each time")


def top(folder, columns, rows):
    command = [SHOW_TOP, os.path.join(folder, "job.json"), str(columns), str(rows)]
    screen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return terminal_svg.draw(screen, f"ddprun top, {columns} × {rows}", columns,
                             "ddprun top: a job of eight ranks; one is slower than the others")


def recovery(folder):
    """A bar for each way of launching, of bench/warm_bench.py's kills."""
    record = json.loads(read(folder, "recovery.json"))
    names = {"warm": ("ddprun", True), "cold": ("ddprun --warm off", True), "torchrun": ("torchrun", False)}
    kills = {way: record["seconds"].get(way, {}).get("kill") for way in names}
    missing = [way for way, values in kills.items() if not values]
    if missing:
        raise ValueError(f"recovery.json has no kills of {', '.join(missing)}: scripts/pictures --measure")
    rows = [(name, ours, kills[way]) for way, (name, ours) in names.items()]
    counts = ", ".join(str(len(values)) for _, _, values in rows)
    machine = f"a machine of {record['cores']} cores at load {record['load']:g}, {record['date']}"
    note = f"Plain DDP, gloo, 2 nodes on {machine}; median, a dot for each kill ({counts})"
    medians = ", ".join(f"{name} {statistics.median(values):.2g} s" for name, _, values in rows)
    title = "From the kill of a worker to the next training step of all ranks"
    return bars_svg.draw(title, note, rows, f"Recovery time: {medians}")


def drawings(folder=FOLDER):
    """{name: how to draw it}."""
    return {"demo.svg": lambda: demo(folder), "recovery.svg": lambda: recovery(folder),
            **{f"top-{columns}.svg": functools.partial(top, folder, columns, rows) for columns, rows in TOP_SIZES}}


# ------------------------------------------------------------------- the page, by Chromium


def page_name(width, theme):
    return f"page-{width}-{theme}.png"


def page_checksum(folder, width, theme):
    inputs = [read(PAGE_FOLDER, name) for name in PAGE_FILES] + [read(folder, name) for name in RECORDS] + [f"{width} {theme}"]
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()


def chunks(picture):
    """(kind, data) of a PNG, in its order. Source: the PNG specification, 5.3."""
    at = len(_SIGNATURE)
    while at < len(picture):
        length, = struct.unpack(">I", picture[at:at + 4])
        yield picture[at + 4:at + 8], picture[at + 8:at + 8 + length]
        at += length + 12


def with_checksum(picture, checksum):
    """The picture with a text chunk for the checksum, behind its header."""
    def packed(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    parts = list(chunks(picture))
    text = (b"tEXt", _CHECKSUM + b"\0" + checksum.encode())
    return _SIGNATURE + b"".join(packed(*part) for part in [parts[0], text, *parts[1:]])


def checksum_of(picture):
    """The checksum in a picture; "" = none."""
    texts = [data.split(b"\0", 1) for kind, data in chunks(picture) if kind == b"tEXt"]
    return next((text.decode() for name, text in texts if name == _CHECKSUM), "")


@functools.lru_cache(maxsize=None)
def status_of(path):
    """The service's answer for the job in a file; ddprun's own code fills in the rank that lags."""
    return subprocess.run([SHOW_TOP, path], capture_output=True, text=True, check=True).stdout


class Page(http.server.BaseHTTPRequestHandler):
    """Serves the page's files, and the records of a folder."""

    folder = FOLDER

    def body(self, name):
        """None: there is no such file."""
        if name == "api/v1/status":
            return status_of(os.path.join(self.folder, "job.json"))
        if name == "api/v1/curves":
            return read(self.folder, "curves.json")
        return read(PAGE_FOLDER, name) if name in PAGE_FILES else None

    def do_GET(self):  # noqa: N802: the name is http.server's
        name = self.path.lstrip("/") or "page.html"
        body = self.body(name)
        if body is None:
            return self.send_error(404)
        body = body.encode()
        self.send_response(200)
        kinds = {"css": "text/css", "js": "text/javascript", "html": "text/html"}
        self.send_header("Content-Type", kinds.get(name.rsplit(".", 1)[-1], "application/json"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return self.wfile.write(body)

    def log_message(self, *_):
        """Logs nothing."""


def draw_pages():
    import browser  # noqa: PLC0415: only where pages are drawn
    if browser.CHROMIUM is None:
        sys.exit("error: the pictures of the page need chromium: apt install chromium")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    chromium = browser.Browser()
    try:
        for width, theme in PAGES:
            picture = chromium.picture(f"http://127.0.0.1:{server.server_port}/", SHOWN, width, theme == "dark")
            with open(os.path.join(FOLDER, page_name(width, theme)), "wb") as sink:
                sink.write(with_checksum(picture, page_checksum(FOLDER, width, theme)))
            print(f"docs/pictures/{page_name(width, theme)}", flush=True)
    finally:
        chromium.close()
        server.shutdown()


# ------------------------------------------------------------------- all


def stale(folder=FOLDER):
    """The names of pictures that are missing or differ from what their records give now."""
    names = []
    for name, draw in drawings(folder).items():
        path = os.path.join(folder, name)
        if not os.path.exists(path) or read(folder, name) != draw():
            names.append(name)
    for width, theme in PAGES:
        path = os.path.join(folder, page_name(width, theme))
        picture = b""
        if os.path.exists(path):
            with open(path, "rb") as source:
                picture = source.read()
        if checksum_of(picture) != page_checksum(folder, width, theme):
            names.append(page_name(width, theme))
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing, say what is stale; exit status 1")
    if parser.parse_args().check:
        names = stale()
        for name in names:
            print(f"docs/pictures/{name} is stale: scripts/pictures remakes it")
        return 1 if names else 0
    for name, draw in drawings().items():
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as sink:
            sink.write(draw())
        print(f"docs/pictures/{name}", flush=True)
    draw_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
