#!/usr/bin/env python3
"""What watching a job costs: processor time of agents and service with the page and metrics asked for, and without.

status_bench.py [--seconds S] [--runs N] [--check]

Each run starts a job of 2 nodes x 2 workers that mark a step every 20 ms twice: without a page, and with one that is asked
for its status once a second, as a browser does, and for its metrics once in 5 s, as Prometheus does. Printed are the
medians: percent of a core that agents, keepers and service use (not the workers), how long the parts of the page
take one after the other, and, where Chromium is installed, when it has loaded the page and shows the job.
--check fails above 1 % of a core and 0.3 s.
"""

import argparse
import os
import statistics
import sys
import threading
import time
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from bed import Bed, free_port  # noqa: E402
from browser import CHROMIUM, Browser  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "marking_worker.py")
STATUS_EVERY, METRICS_EVERY = 1, 5
MOST_CORE, MOST_LOAD = 0.01, 0.3


def processor_seconds(pids):
    """User and system time of these processes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as source:
            fields = source.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def parts_seconds(url):
    """All that a browser asks for before it can show the job."""
    began = time.monotonic()
    for part in ("", "page.css", "common.js", "course.js", "nodes.js", "page.js", "api/v1/curves", "api/v1/status"):
        fetch(url + part)
    return time.monotonic() - began


def browser_seconds(url):
    """Until Chromium has loaded the page, and until it shows the job; the median of five times by the latter."""
    browser = Browser()
    try:
        return sorted((browser.load(url, "document.title.includes(': running')") for _ in range(5)), key=lambda both: both[1])[2]
    finally:
        browser.close()


def watch(url, seconds):
    """Asks for as long as a page that stays open and a monitor."""
    pause = threading.Event()
    for second in range(seconds):
        fetch(url + "api/v1/status")
        if second % METRICS_EVERY == 0:
            fetch(url + "metrics")
        pause.wait(STATUS_EVERY)


def one_job(seconds, page):
    """(share of a core, seconds for the page's parts or None, those of a browser or None)."""
    bed = Bed()
    try:
        port, meeting = free_port(), free_port()
        agents = []
        for rank in (0, 1):
            agents.append(bed.run(f"node{rank}", [
                "--nnodes", 2, "--node_rank", rank, "--master_addr", "127.0.0.1", "--master_port", port, "--nproc_per_node", 2,
                *(("--status_page", 0) if page else ()), "--event_log", bed.events.path,
                WORKER, bed.journal.path, meeting, 20, 1_000_000]))
        bed.wait(lambda: len(bed.journal.find("step", step=100)) == 4, "steps", 60, agents)
        pids = {line[name] for line in bed.events.find("agent_start") for name in ("pid", "keeper")}
        pids |= {line["service_pid"] for line in bed.events.find("service_started")}
        url = bed.event("status_page")["url"] if page else None
        load = min(parts_seconds(url) for _ in range(5)) if page else None
        before, began = processor_seconds(pids), time.monotonic()
        if page:
            watch(url, seconds)
        else:
            threading.Event().wait(seconds)
        share = (processor_seconds(pids) - before) / (time.monotonic() - began)
        return share, load, browser_seconds(url) if page and CHROMIUM else None
    finally:
        bed.stop()
        bed.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    without, watched, loads, browsers = [], [], [], []
    for _ in range(arguments.runs):
        without.append(one_job(arguments.seconds, page=False)[0])
        share, load, browser = one_job(arguments.seconds, page=True)
        watched.append(share)
        loads.append(load)
        browsers.append(browser)
    base, seen, load = (statistics.median(values) for values in (without, watched, loads))
    cost = seen - base
    print(f"agents, keepers and service of 2 nodes x 2 workers, medians of {arguments.runs} runs of {arguments.seconds} s")
    print(f"  without a page       {100 * base:5.2f} % of a core")
    print(f"  page and metrics     {100 * seen:5.2f} % of a core")
    held = cost <= MOST_CORE and load <= MOST_LOAD
    if CHROMIUM:
        loaded, shown = (statistics.median(both[i] for both in browsers) for i in (0, 1))
        held = held and shown <= MOST_LOAD
    print(f"  {'kept  ' if cost <= MOST_CORE else 'BROKEN'} watching: {100 * cost:.2f} % <= {100 * MOST_CORE:g} % of a core")
    print(f"  {'kept  ' if load <= MOST_LOAD else 'BROKEN'} the page's parts: {load:.3f} s <= {MOST_LOAD} s")
    if CHROMIUM:
        print(f"  {'kept  ' if shown <= MOST_LOAD else 'BROKEN'} Chromium shows the job after {shown:.3f} s <= {MOST_LOAD} s; "
              f"it has loaded the page after {loaded:.3f} s")
    else:
        print("  (not measured: chromium is not installed)")
    return 0 if held or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
