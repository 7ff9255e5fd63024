#!/usr/bin/env python3
"""Healthy but odd programs, each from a seed: a loop that people have (odd_bases.py), in which some ranks do for some seconds
what people's scripts do (odd_deeds.py, odd_collectives.py), at some moment. Each ends with a line FINAL of each rank.

odd_programs.py SEED [SEED…]    prints their texts
"""

import dataclasses
import inspect
import os
import random
import re
import sys

import hang_deeds
import odd_bases
import odd_collectives
import odd_deeds

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BEFORE, AFTER, LAST = "before joining", "after leaving", "after the last step"
MARKED_STEPS = 160  # enough for an agent to learn how long a marked step takes

MODULES = ("os", "socket", "subprocess", "sys", "tempfile", "threading")

MAIN = '''

def say(line):
    os.write(1, f"{line}\\n".encode())  # one write, which no other rank's divides


def odd(moment):
    for deed, shared, ranks, when, seconds in PLAN:
        if when != moment or not (shared or RANK in ranks):
            continue
        if RANK in ranks:
            say(f"ODD {RANK} {deed.__name__} {monotonic():.3f} after steps of at most {longest:.3f} s")
        deed(seconds, RANK in ranks) if shared else deed(seconds)


longest = 0
odd("before joining")
program = Base()
for step in range(STEPS):
    odd(step)
    began = monotonic()
    program.step(step)
    longest = max(longest, monotonic() - began)
odd("after the last step")
program.end()
odd("after leaving")
say(f"FINAL {RANK}")
os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends
'''

NATIVE = '''#!/bin/sh
# {text}
step=0
while [ $step -lt {steps} ]; do
  sleep {step}
  step=$((step + 1))
done
case " {ranks} " in
  *" $RANK "*) echo "ODD $RANK sleep"; sleep {seconds} ;;
esac
echo "FINAL $RANK"
'''


@dataclasses.dataclass(frozen=True)
class Oddity:
    deed: object  # a function of odd_deeds or odd_collectives
    ranks: tuple
    when: object  # a step, or one of the moments above
    seconds: float

    @property
    def shared(self):
        return len(inspect.signature(self.deed).parameters) == 2

    def __str__(self):
        ranks = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"ranks {', '.join(map(str, self.ranks))}"
        when = f"before step {self.when}" if isinstance(self.when, int) else self.when
        return f"{ranks}: {self.deed.__name__} for {self.seconds:g} s {when}"


@dataclasses.dataclass(frozen=True)
class Program:
    seed: int
    base: type
    world: int
    steps: int
    step: float  # seconds
    oddities: tuple
    no_python: bool = False

    def __str__(self):
        how = " --no_python" if self.no_python else ""
        oddities = "; ".join(map(str, self.oddities)) or "nothing odd"
        return (f"seed {self.seed}: {self.base.__name__}{how}, {self.world} ranks, {self.steps} steps of "
                f"{self.step * 1000:g} ms; {oddities}")

    @property
    def seconds(self):
        """How long it takes beside its start, at most."""
        return self.steps * self.step + sum(oddity.seconds for oddity in self.oddities)

    @property
    def native(self):
        return self.no_python and self.base is odd_bases.Alone

    def text(self):
        return self._shell() if self.native else self._python()

    def _shell(self):
        oddity = self.oddities[0] if self.oddities else Oddity(odd_deeds.sleeps, (), 0, 0)
        return NATIVE.format(text=self, steps=self.steps, step=self.step, ranks=" ".join(map(str, oddity.ranks)),
                             seconds=oddity.seconds)

    def _python(self):
        plan = ",\n        ".join(
            f"({oddity.deed.__name__}, {oddity.shared}, {oddity.ranks}, {oddity.when!r}, {oddity.seconds!r})"
            for oddity in self.oddities)
        pieces = [f"# {self}\n" + "".join(f"import {module}\n" for module in MODULES) + "from time import monotonic, sleep\n\n"
                  'RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])\n'
                  f"STEPS, STEP, FOREVER = {self.steps}, {self.step}, {hang_deeds.FOREVER}"]
        if self.base is odd_bases.Marking:
            pieces += [marks(), inspect.getsource(odd_bases.Plain).rstrip()]
        pieces += [inspect.getsource(piece).rstrip() for piece in
                   (*odd_deeds.HELPERS, *odd_collectives.HELPERS,
                    *dict.fromkeys(oddity.deed for oddity in self.oddities if oddity.deed not in odd_deeds.HELPERS), self.base)]
        pieces += [f"Base = {self.base.__name__}\nPLAN = [{plan}]" + MAIN.rstrip()]
        return "\n\n\n".join(pieces) + "\n"

    def without(self, index):
        """The same with one oddity less."""
        return dataclasses.replace(self, oddities=self.oddities[:index] + self.oddities[index + 1:])


def marks():
    """The first Python block of the docs' page that has mark()."""
    with open(os.path.join(ROOT, "docs", "PROGRESS.md"), encoding="utf-8") as page:
        blocks = re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL)
    return next(block for block in blocks if "def mark(" in block).rstrip()


def draw_oddity(draw, base, world, steps, seconds, deeds=None):
    joins = base is not odd_bases.Alone
    shared = joins and draw.random() < 0.3
    deed = draw.choice(deeds or (odd_collectives.SHARED if shared else odd_deeds.SOLO))
    shared = len(inspect.signature(deed).parameters) == 2
    ranks = draw.choice([(0,), (0,), (draw.randrange(world),), tuple(sorted(draw.sample(range(world), draw.randint(1, world)))),
                         tuple(range(world))])
    # Most are in the middle, where an agent has learned how long steps take.
    when = draw.choice([*[draw.randrange(steps // 2, steps)] * 6, 0, LAST, BEFORE, AFTER])
    if shared and when in (BEFORE, AFTER):
        when = steps // 2
    took = round(draw.uniform(*seconds), 1)
    if deed in odd_deeds.BUSY:
        took = min(took, seconds[0])
    return Oddity(deed, ranks, when, took)


def draw_program(seed, seconds=(6, 12), deeds=None):
    """`seconds`: how long an oddity takes, from and to. `deeds`: these only."""
    draw = random.Random(seed)
    base = draw.choice(odd_bases.BASES)
    world = draw.choice([2, 2, 2, 3])
    marking = base is odd_bases.Marking
    steps = MARKED_STEPS if marking else draw.randint(30, 60)
    step = 0.01 if marking else draw.choice([0.01, 0.02, 0.03, 0.05])
    no_python = draw.random() < (0.7 if base is odd_bases.Alone else 0.1)
    count = 1 if no_python and base is odd_bases.Alone else draw.choice([1, 1, 1, 2, 3])
    if no_python and base is odd_bases.Alone:
        deeds = [odd_deeds.sleeps]
    oddities = tuple(draw_oddity(draw, base, world, steps, seconds, deeds) for _ in range(count))
    return Program(seed, base, world, steps, step, oddities, no_python)


def draw_hang(seed, hang):
    """A program in which one rank hangs as `hang` of hang_deeds does."""
    draw = random.Random(f"{seed} {hang.__name__}")
    base = draw.choice([base for base in odd_bases.BASES if base is not odd_bases.Alone])
    world = draw.choice([2, 2, 2, 3])
    steps, step = (MARKED_STEPS, 0.01) if base is odd_bases.Marking else (draw.randint(30, 60), draw.choice([0.01, 0.02, 0.05]))
    oddity = Oddity(hang, (draw.randrange(world),), draw.randrange(steps * 3 // 4, steps), 0)
    return Program(seed, base, world, steps, step, (oddity,))


if __name__ == "__main__":
    for number in sys.argv[1:] or sys.exit(__doc__):
        print(draw_program(int(number)).text())
