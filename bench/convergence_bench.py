#!/usr/bin/env python3
"""The loss that the examples reach in fp16 and bf16 beside float32, and digits' accuracy.

    bench/convergence_bench.py [--example digits|char_gpt] [--seeds N] [--json FILE] [--check]

Each run is a whole training with 2 workers over shared memory. Its loss is the mean of the last steps; of each precision the
mean over the seeds is compared with float32's. --check fails where it is more than 1 % off, or where a run of digits recognises
less than 97 % of the held-out digits on the mean. The build is the release one, or DDPRUN_BENCH_BIN's.
Exit status 77: there is no such build, or no data.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

from worker_bench import BIN, DIGITS, start_workers, wait_all

# example: (options, how many of the last steps count)
# char_gpt is narrower than by default: CPUs without half precision take ten times as long in it.
EXAMPLES = {
    "digits": (["--data", DIGITS], 46),
    "char_gpt": (["--steps", 300, "--width", 48, "--context_length", 32, "--learning_rate", 3e-3, "--max_grad_norm", 1,
                  "--warmup_steps", 20], 50),
}
PRECISIONS = ("no", "bf16", "fp16")
MOST_OFF = 0.01
LEAST_ACCURACY = 97.0


def train(example, precision, seed):
    """(loss at the end, accuracy in percent or None)"""
    options, last = EXAMPLES[example]
    with tempfile.TemporaryDirectory(prefix="ddprun-convergence-") as folder:
        journal = Path(folder, "journal")
        command = [BIN / example, *options, "--mixed_precision", precision, "--seed", seed, "--backend", "shm",
                   "--journal", journal]
        output, _ = wait_all(start_workers(command, 2), command)
        losses = [json.loads(line)["loss"] for line in journal.read_text(encoding="utf-8").splitlines()]
    accuracy = re.search(r"^final accuracy ([0-9.]+)%", output[0], re.MULTILINE)
    return statistics.mean(losses[-last:]), float(accuracy.group(1)) if accuracy else None


def compare(example, seeds):
    """Prints a table; whether the promises are kept, and every figure."""
    kept, figures = True, {}
    for precision in PRECISIONS:
        runs = [train(example, precision, seed) for seed in range(1, seeds + 1)]
        losses = [loss for loss, _ in runs]
        accuracies = [accuracy for _, accuracy in runs if accuracy is not None]
        figures[precision] = {"losses": losses, "accuracies": accuracies}
        off = statistics.mean(losses) / statistics.mean(figures["no"]["losses"]) - 1
        holds = abs(off) <= MOST_OFF and (not accuracies or statistics.mean(accuracies) >= LEAST_ACCURACY)
        kept = kept and holds
        shown = f"  accuracy {min(accuracies):.1f} to {max(accuracies):.1f} %" if accuracies else ""
        print(f"  {'kept  ' if holds else 'BROKEN'} {example:8} {precision:4}  loss {statistics.mean(losses):.4f}  "
              f"({off * 100:+.2f} % of float32's, each seed's {', '.join(f'{loss:.4f}' for loss in losses)}){shown}", flush=True)
    return kept, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--example", choices=sorted(EXAMPLES), action="append", help="default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", help="every figure, to this file")
    parser.add_argument("--check", action="store_true", help="exit status 1 where a promise is broken")
    arguments = parser.parse_args()
    for needed in (BIN / "digits", BIN / "char_gpt", DIGITS):
        if not needed.exists():
            print(f"skipped: there is no {needed}")
            return 77
    results = {example: compare(example, arguments.seeds) for example in arguments.example or EXAMPLES}
    if arguments.json:
        figures = {example: figures for example, (_, figures) in results.items()}
        Path(arguments.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0 if all(kept for kept, _ in results.values()) or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
