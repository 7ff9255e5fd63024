#!/usr/bin/env python3
"""Plays one launch and shows what is wrong with it: `play.py 'JSON'`, as a failed test prints it, or `play.py SEED`.

Only the standard library, ddprun (DDPRUN_BIN) and a kernel with namespaces.
"""

import collections
import concurrent.futures
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]

from bed import CACHE, DDPRUN, SLOW  # noqa: E402
from draw import draw  # noqa: E402
from judge import judge  # noqa: E402
from lane import Lanes, why_not  # noqa: E402
from launch import Launch  # noqa: E402
from shrink import shrink  # noqa: E402

# Seconds that a launch may take, and after which it is ended.
BOUND = 8 * SLOW
PEER = os.environ.get("DDPRUN_LAUNCHES_PEER", os.path.join(CACHE, "py-full", "bin", "torchrun"))
# What a launch inherits; the rest is drawn.
ENVIRONMENT = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
               "DDPRUN_DAEMON_DIR": "/nonexistent/ddprun-daemon", **{
                   name: os.environ[name] for name in ("AWAKE_MUTANT", "ASAN_OPTIONS", "TSAN_OPTIONS") if name in os.environ}}


class Played:
    """A launch that has been played, and what is wrong with it."""

    def __init__(self, launch, seen, complaints):
        self.launch = launch
        self.seen = seen
        self.complaints = complaints

    def story(self):
        lines = [f"  {complaint}" for complaint in self.complaints]
        lines.append(f"  Again: python3 tests/launches/play.py '{self.launch.text()}'")
        for agent, script in enumerate(self.seen["scripts"]):
            lines += [f"  ---- agent {agent}, in {self.seen['took']:.1f} s: status {self.seen['statuses'][agent]}",
                      *(f"  $ {line}" for line in script.splitlines())]
            for name in ("out", "err"):
                text = [line[:200] for line in self.seen[name][agent].splitlines()]
                lines += [f"  {name}| {line}" for line in text[:5] + (["…"] if len(text) > 45 else []) + text[5:][-40:]]
        return "\n".join(lines)


class Players:
    """Plays launches, some side by side."""

    def __init__(self, count):
        self.count = count
        self.lanes = Lanes(count)

    def judged(self, launch, launcher=(DDPRUN,), patience=2 * BOUND):
        seen = self.lanes.play(launch, list(launcher), patience, ENVIRONMENT)
        return Played(launch, seen, judge(launch, seen, BOUND))

    def judge_all(self, launches):
        with concurrent.futures.ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(self.judged, launches))

    def smallest(self, played):
        """The smallest launch that fails in the same way; the same where it doesn't fail again."""
        kind = played.complaints[0].kind
        found = {}

        def fails(launch):
            again = self.judged(launch)
            if any(complaint.kind == kind for complaint in again.complaints):
                found["last"] = again
                return True
            return False

        if fails(played.launch):
            shrink(played.launch, fails)
        return found.get("last", played)

    def explain(self, failed):
        """What a failed test says: one launch of each kind of failure, made small, and the others' names."""
        by_kind = collections.defaultdict(list)
        for played in failed:
            by_kind[played.complaints[0].kind].append(played)
        return "\n".join(f"{kind}, in {len(those)} launches, such as:\n{self.smallest(those[0]).story()}"
                         for kind, those in by_kind.items())

    def close(self):
        self.lanes.close()


def main(word):
    reason = why_not(DDPRUN)
    if reason:
        sys.exit(reason)
    players = Players(1)
    played = players.judged(draw(int(word)) if word.isdigit() else Launch(**json.loads(word)))
    players.close()
    print(played.story())
    return 1 if played.complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
