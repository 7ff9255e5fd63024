#!/usr/bin/env python3
"""Real hangs (hang_deeds.py): the rank that holds up the others is named within seconds, and ended only where it provably
can't go on, or after --hang_timeout.

DDPRUN_TEST_SEED is the first seed of each kind. --all has all kinds, and several seeds of each.
"""

import random
import re
import time
import unittest

import crowd
import hang_deeds
from odd_programs import draw_hang
from python_bed import SLOW, WHOLE, torch_is_there
from seeds import drawn_seed

SEED = drawn_seed()
NAMED = 6  # seconds after the steps stop, without other load
PROVEN = 10
QUIET = 15  # for so long nothing is ended
TIMEOUT = 8  # --hang_timeout
EACH = 4  # seeds of a kind, with --all
AT_A_TIME = 5  # an agent learns how long steps take, which other programs' starts make longer
# Either rank is as much to blame.
MUTUAL = (hang_deeds.kinds_crossed, hang_deeds.groups_crossed, hang_deeds.group_and_default_crossed,
          hang_deeds.one_collective_more)
# Any of the others, which wait for it.
LEFT = (hang_deeds.left_with_its_connections_kept,)


class HangingJob(crowd.Job):
    """Runs for `after` seconds after the hang has begun, and until a rank is named, for a while."""

    def __init__(self, program, after, options=()):
        super().__init__(program, options)
        self.after, self.begun = after, None

    def look(self):
        super().look()
        if self.begun is None and (begun := hang_begins(self.process.text())):
            self.begun = time.monotonic()
        if self.begun is not None:
            named = self.bed.events.find("hang_named") or self.bed.events.find("hang")
            self.until = self.begun + (self.after if named else max(self.after, NAMED * SLOW))


def hang_begins(text):
    found = re.search(r"^ODD \d+ \w+ ([\d.]+) ", text, re.MULTILINE)
    return float(found[1]) if found else None


def say(text):
    print(text, flush=True)


@unittest.skipUnless(torch_is_there(), "there is no torch")
class RealHangs(unittest.TestCase):
    def setUp(self):
        say(f"DDPRUN_TEST_SEED={SEED}")

    def programs(self, hangs, count):
        if WHOLE:
            return [draw_hang(SEED + number, hang) for hang in hangs for number in range(EACH)]
        return [draw_hang(SEED, hang) for hang in random.Random(SEED).sample(hangs, count)]

    def outcomes(self, programs, after, options=()):
        return crowd.run(programs, lambda program: HangingJob(program, after, options), AT_A_TIME)

    def check_each(self, outcomes, check):
        """Fails with all those that `check` finds something wrong with."""
        wrong = []
        for outcome in outcomes:
            named = ", ".join(self.told(outcome)) or "no rank named"
            say(f"{outcome.program}: {named}")
            if problem := check(outcome):
                wrong.append(f"{problem}: {outcome.program}")
                say(f"{wrong[-1]}\n{outcome.text}\n{outcome.program.text()}")
        self.assertEqual([], wrong)

    @staticmethod
    def told(outcome):
        begun = hang_begins(outcome.text) or 0
        return [f"{line['event']} {line.get('rank', line.get('ranks'))} after {line['t'] - begun:.1f} s"
                for line in outcome.of("hang_named") + outcome.of("hang")]

    @staticmethod
    def misnamed(outcome, events):
        """What is wrong with the ranks that are named; None if nothing is."""
        oddity = outcome.program.oddities[0]
        if oddity.deed in MUTUAL:
            return None
        mine = {str(oddity.ranks[0])}
        named = {str(line["rank"]) for line in events if "rank" in line}
        if not named:  # An agent has said that a rank is stopped, and says nothing twice: the service's lines have it.
            named = {rank for line in events for rank in line["ranks"].split(",")}
        is_right = named and not named & mine if oddity.deed in LEFT else named == mine
        return None if is_right else f"named {sorted(named)}"

    def check_named(self, outcome):
        named, begun = outcome.of("hang_named"), hang_begins(outcome.text)
        if begun is None or not named:
            return "not named"
        if named[0]["t"] - begun > NAMED * SLOW:
            return "named late"
        rank = outcome.program.oddities[0].ranks[0]
        state = "(holds up the job: |was stopped by SIGSTOP; the job stands still)"
        if not re.search(rf"worker rank {rank} \(.*pid \d+\) {state}", outcome.text):
            return "not on the console"
        return self.misnamed(outcome, named)

    def test_named_and_left_alone(self):
        def check(outcome):
            if outcome.status is not None or outcome.of("hang"):
                return f"ended, status {outcome.status}"
            return self.check_named(outcome)
        self.check_each(self.outcomes(self.programs(hang_deeds.ENDLESS, 5), QUIET), check)

    def test_an_interpreter_that_is_locked(self):
        """Its witness can't look, and its default group has nothing to show: what it had begun in the other groups does."""
        program = draw_hang(134352145, hang_deeds.native_sleep_with_gil_forever)
        self.assertIn("TwoGroups, 2 ranks", str(program))
        self.check_each(self.outcomes([program], QUIET), self.check_named)

    def test_ended_after_the_time_out(self):
        def check(outcome):
            ended, begun = outcome.of("hang"), hang_begins(outcome.text)
            if outcome.status is None or not ended:
                return "not ended"
            if not TIMEOUT - 1 < ended[0]["t"] - begun < (TIMEOUT + NAMED) * SLOW:
                return f"ended after {ended[0]['t'] - begun:.1f} s"
            return self.misnamed(outcome, [line for line in ended if "rank" in line])
        programs = self.programs(hang_deeds.ENDLESS, 3)
        self.check_each(self.outcomes(programs, (TIMEOUT + NAMED) * SLOW, ("--hang_timeout", TIMEOUT)), check)

    def test_proven_ones_are_ended(self):
        def check(outcome):
            ended, begun = outcome.of("hang"), hang_begins(outcome.text)
            if outcome.status is None or not ended:
                return "not ended"
            if ended[0]["t"] - begun > PROVEN * SLOW:
                return f"ended after {ended[0]['t'] - begun:.1f} s"
            return self.misnamed(outcome, [line for line in ended if "rank" in line])
        self.check_each(self.outcomes(self.programs(hang_deeds.PROVABLE, 4), PROVEN * SLOW), check)


if __name__ == "__main__":
    unittest.main(verbosity=2)
