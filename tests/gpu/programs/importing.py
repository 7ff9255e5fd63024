"""Imports what --modules names, as far as it is installed; then makes its first call of CUDA and a step of an optimizer, says
what it has met, and waits for SIGUSR1."""

import argparse
import importlib
import importlib.util
import os
import signal
import sys

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # before there are threads

BEFORE = set(sys.modules)

import torch  # noqa: E402

from held import had_cuda  # noqa: E402
from train import Journal  # noqa: E402


def import_all(names):
    """{name: why it can't be imported, or ""} of those that are installed."""
    outcomes = {}
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            continue
        try:
            importlib.import_module(name)
            outcomes[name] = ""
        except Exception as error:  # pylint: disable=broad-exception-caught
            outcomes[name] = f"{type(error).__name__}: {error}"[:300]
    return outcomes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--modules", type=lambda text: text.split(","), required=True)
    arguments = parser.parse_args()
    before = had_cuda(torch)
    modules = import_all(arguments.modules)
    first = torch.ones(8, device=arguments.device).sum()
    weight = torch.nn.Parameter(torch.ones(2, device=arguments.device))
    optimizer = torch.optim.AdamW([weight], 0.1)
    weight.sum().backward()
    optimizer.step()
    Journal(arguments.journal, int(os.environ["RANK"])).say(
        "worker", had_cuda=before, modules=modules, ahead=[name for name in ("torch", *modules) if name in BEFORE],
        first=first.item(), device=str(weight.device), weight=weight.tolist(), gpus=torch.cuda.device_count())
    signal.sigwait([signal.SIGUSR1])


main()
