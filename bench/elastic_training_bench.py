#!/usr/bin/env python3
"""Two promises of a C++ Session that trains through faults, under the real launcher (docs/DATA.md, docs/CPP.md).

elastic_training_bench.py [--only samples|loss] [--trainings N] [--epochs N] [--faults N] [--seed N]

samples: trainings of 30 epochs while the number of workers walks between 1 and 6: workers and agents are killed at random
moments, nodes are stopped, lose their power, and join. In the history that led to the last parameters each sample must be
learned from once in each epoch, with the weight of the others of its step, and all six sizes must occur. Of the trainings
in turn one is plain, one has --warm off, and one has checkpoints. The state is in the workers' memory alone in the former
two, so the last worker that has it isn't killed; in the third all are, and go on from the newest checkpoint.

loss: how far from each other undisturbed trainings end, by seeds, and whether trainings with 50 faults end within that,
with a constant batch of each step and with one of each worker; and whether the former end with the undisturbed loss of the
same seed, to 1e-5 of it.

Hosts are made of namespaces. Exit status 1 when a promise is broken; 77 where there are no namespaces.
"""

import argparse
import os
import random
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
for variable, program in (("DDPRUN_BIN", "ddprun"), ("DDPRUN_SESSION_PROBE", "session_probe")):
    os.environ.setdefault(variable, os.path.join(ROOT, "build", "release", "bin", program))

import cluster  # noqa: E402
import elastic_training as elastic  # noqa: E402
from bed import TimelineError  # noqa: E402

SEEDS = range(1, 9)
DISTURBED = (1, 2)  # of these
KINDS = ("plain", "--warm off", "checkpoints")


def walk(number, hosts, rng, epochs):
    """Whether a training of that many epochs had each sample once in each."""
    kind = KINDS[number % len(KINDS)]
    name = f"samples {number + 1} ({kind})"
    training = elastic.walking(rng, hosts, epochs, checkpoints=kind == "checkpoints",
                               launch=("--warm", "off") if kind == "--warm off" else ())
    try:
        elastic.conduct(training, lambda each: elastic.walk(each, epochs))
    except (elastic.Wrong, TimelineError, AssertionError) as error:
        print(f"  BROKEN {name}: {error}", flush=True)
        return False
    faults = ", ".join(f"{count} × {kind}" for kind, count in sorted(training.faults.items()))
    print(f"  kept   {name}: {epochs} epochs of {elastic.SIZE} samples, {len(training.history.steps)} steps in "
          f"{training.seconds:.0f} s; {training.generation_count} generations, steps by world size {training.steps_by_world}; "
          f"{faults}; {training.done_again} steps done again", flush=True)
    return True


def compare_losses(hosts, rng, faults):
    """Whether disturbed trainings end where undisturbed ones do."""
    def train(seed, count=0, per_worker=False):
        training = elastic.falling(rng, hosts, seed, per_worker)
        final = elastic.conduct(training, lambda each: elastic.fall(each, count))
        met = f", {len(training.moments)} faults, steps by world size {training.steps_by_world}" if count else ""
        batch = "a constant batch of each worker" if per_worker else "constant steps"
        print(f"  seed {seed}, {batch}: loss {final['loss']:.9f} after {final['step']} steps in "
              f"{training.seconds:.0f} s{met}", flush=True)
        return final
    try:
        undisturbed = [train(seed) for seed in SEEDS]
        same_steps = [train(seed, faults) for seed in DISTURBED]
        other_steps = [train(seed, faults, per_worker=True) for seed in DISTURBED]
    except (elastic.Wrong, TimelineError, AssertionError) as error:
        print(f"  BROKEN loss: {error}", flush=True)
        return False
    low, high = elastic.noise([final["loss"] for final in undisturbed])
    print(f"  undisturbed, by {len(SEEDS)} seeds: 99 of 100 others lie between {low:.6f} and {high:.6f}", flush=True)
    kept = True
    for words, finals in (("constant steps", same_steps), ("a constant batch of each worker", other_steps)):
        for seed, final in zip(DISTURBED, finals):
            within = low <= final["loss"] <= high
            off = abs(final["loss"] / undisturbed[SEEDS.index(seed)]["loss"] - 1)
            print(f"  {'kept  ' if within else 'BROKEN'} loss of seed {seed}, {words}: {final['loss']:.6f} is to be within the "
                  f"noise; {off:.1e} from the undisturbed one", flush=True)
            kept = kept and within
    for seed, final in zip(DISTURBED, same_steps):
        plain = undisturbed[SEEDS.index(seed)]
        off, bound = abs(final["loss"] / plain["loss"] - 1), elastic.rounding(plain)
        close = off <= elastic.SAME_LOSS and bound <= elastic.SAME_LOSS
        print(f"  {'kept  ' if close else 'BROKEN'} loss of seed {seed}, constant steps: {off:.1e} from the undisturbed one; "
              f"promised {elastic.SAME_LOSS:g}, rounding can make {bound:.1e}", flush=True)
        kept = kept and close
    return kept


def run(arguments):
    print(f"seed {arguments.seed}", flush=True)
    hosts, kept = cluster.Cluster(6), True
    if arguments.only != "loss":
        for number in range(arguments.trainings):
            kept = walk(number, hosts, random.Random(arguments.seed + number), arguments.epochs) and kept
    if arguments.only != "samples":
        kept = compare_losses(hosts, random.Random(arguments.seed), arguments.faults) and kept
    print("kept" if kept else "BROKEN", flush=True)
    return 0 if kept else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("samples", "loss"))
    parser.add_argument("--trainings", type=int, default=3, help="of samples")
    parser.add_argument("--epochs", type=int, default=30, help="of samples")
    parser.add_argument("--faults", type=int, default=50, help="of loss")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
