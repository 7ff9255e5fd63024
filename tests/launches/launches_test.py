#!/usr/bin/env python3
"""Ordinary launches, drawn from a seed: what torchrun completes completes here (docs/TESTING.md).

DDPRUN_TEST_SEED repeats a run, DDPRUN_LAUNCHES says how many launches it has.
"""

import collections
import concurrent.futures
import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]

import lane  # noqa: E402
import play  # noqa: E402
import shrink  # noqa: E402
from draw import draw, mended  # noqa: E402
from launch import AROUND, MEANINGS, PLAIN, PROGRAMS, Launch  # noqa: E402
from seeds import drawn_seed  # noqa: E402

# A bug that is awake must be found by these.
MUTATED = "AWAKE_MUTANT" in os.environ
SEED = 1 if MUTATED else drawn_seed()
COUNT = int(os.environ.get("DDPRUN_LAUNCHES", 50 if MUTATED else 150))
# Launchers that do one thing wrong, and what the judge must call it. "$0" is ddprun.
SPOILED = {
    "status": '"$0" "$@"; exit 0',
    "processes left": 'setsid sleep 600 >/dev/null 2>&1 & exec "$0" "$@"',
    "files left": ': > /dev/shm/left; exec "$0" "$@"',
    "lines": '"$0" "$@" > before; sed "s/a ~L/a/" before',
    "workers": "exit 3",
    "store": 'exec "$0" --no_python env MASTER_PORT=1 python3 "$@"',
    "environment": 'exec "$0" --no_python env LOCAL_WORLD_SIZE=4 python3 "$@"',
    "arguments": 'exec "$0" "$@" another',
    "folder": 'cd /; exec "$0" "$OLDPWD/$@"',
    "limits": 'ulimit -n 512; exec "$0" "$@"',
    "descriptors": 'exec "$0" --no_python sh -c \'exec python3 "$0" 7</dev/null\' "$@"',
    "session": 'exec "$0" --no_python sh -c \'python3 "$0"; exit $?\' "$@"',
    "hangs": "exec sleep 600",
}


class Launches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        reason = lane.why_not(play.DDPRUN)
        if reason:
            raise unittest.SkipTest(reason)
        cls.players = play.Players(2 * (os.cpu_count() or 1))
        cls.addClassCleanup(cls.players.close)

    def test_drawn_launches(self):
        print(f"seed {SEED}, {COUNT} launches", flush=True)
        played = self.players.judge_all([draw(SEED + number) for number in range(COUNT)])
        failed = [each for each in played if each.complaints]
        if failed and MUTATED:
            self.fail("\n".join(f"{each.launch.text()}: {each.complaints[0]}" for each in failed))
        if failed:
            self.fail(f"seed {SEED}: {len(failed)} of {COUNT} launches failed\n{self.players.explain(failed)}")


class Drawing(unittest.TestCase):
    drawn = [draw(seed) for seed in range(4000)]

    def test_a_seed_is_one_launch(self):
        self.assertEqual([launch.text() for launch in self.drawn[:50]], [draw(seed).text() for seed in range(50)])

    def test_every_value_is_drawn(self):
        counts = {name: collections.Counter() for name in PLAIN}
        for launch in self.drawn:
            for name, value in launch.__dict__.items():
                counts[name].update(map(str, value) if isinstance(value, (list, dict)) else [value])
        self.assertEqual(set(AROUND), set(counts["around"]))
        self.assertEqual(set(PROGRAMS), set(counts["program"]))
        self.assertEqual(set(MEANINGS), set(counts["host_is"]))
        for name, least in (("deed", 15), ("address", 11), ("rendezvous", 5), ("options", 15), ("nnodes", 6), ("local_addr", 5)):
            self.assertGreaterEqual(len(counts[name]), least, name)

    def test_none_contradicts_itself(self):
        for launch in self.drawn:
            self.assertEqual(launch.text(), mended(launch).text())

    def test_text_is_the_launch(self):
        for launch in self.drawn[:100]:
            self.assertEqual(launch, Launch(**json.loads(launch.text())))


class Shrinking(unittest.TestCase):
    def test_what_isnt_needed_goes(self):
        def fails(launch):
            return launch.rendezvous == "c10d" and launch.nproc > 1 and any(name == "tee" for name, _ in launch.options)
        launch = next(launch for launch in Drawing.drawn if fails(launch) and launch.agents == 2 and shrink.size(launch) > 20)
        least = json.loads(shrink.shrink(launch, fails, plays=1000).text())
        self.assertEqual(["tee"], [name for name, _ in least.pop("options")])
        # Without an address it is the default port's.
        self.assertEqual({"rendezvous": "c10d", "nproc": 2, "port": "default"}, least)

    def test_what_never_fails_stays(self):
        self.assertEqual(Drawing.drawn[7], shrink.shrink(Drawing.drawn[7], lambda launch: False))


class Judging(unittest.TestCase):
    """What is wrong is noticed, and called by its name."""

    @classmethod
    def setUpClass(cls):
        Launches.setUpClass.__func__(cls)

    def test_nothing_is_wrong(self):
        self.assertEqual([], self.players.judged(Launch()).complaints)

    def test_spoiled(self):
        def played(kind):
            launch = Launch(deed="exit", amount=3) if kind == "status" else Launch()
            patience = {"hangs": 2, "processes left": play.BOUND / 2}.get(kind, 2 * play.BOUND)
            return self.players.judged(launch, ["sh", "-c", SPOILED[kind], play.DDPRUN], patience)
        with concurrent.futures.ThreadPoolExecutor(self.players.count) as pool:
            for kind, each in zip(SPOILED, pool.map(played, SPOILED)):
                with self.subTest(kind):
                    self.assertIn(kind, [complaint.kind for complaint in each.complaints], each.story())


if __name__ == "__main__":
    unittest.main(verbosity=2)
