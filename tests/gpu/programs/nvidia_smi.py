#!/usr/bin/env python3
"""Stands for nvidia-smi where there is none, as far as checks ask it (gpu_bed.py): the GPUs of the file FAKE_NVML_GPUS
(tests/support/fake_nvml.cc). Each running process with a pid in the file FAKE_SMI_PIDS has 500 MiB of the first."""

import os
import sys

MODES = {"1": "Enabled", "0": "Disabled", "": "[N/A]"}
EACH = 500  # MiB


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def users():
    if "FAKE_SMI_PIDS" not in os.environ:
        return []
    with open(os.environ["FAKE_SMI_PIDS"], encoding="ascii") as file:
        return [pid for pid in file.read().split() if runs(pid)]


def fields_of(gpu, pids):
    total, free = int(gpu.get("memory_mib", 0)), int(gpu.get("free_mib", gpu.get("memory_mib", 0)))
    return {"name": gpu.get("name"), "uuid": gpu.get("uuid"), "pci.bus_id": gpu.get("pci"), "memory.total": total,
            "memory.used": total - free + EACH * len(pids), "memory.reserved": 0,
            "utilization.gpu": gpu.get("utilization", "[N/A]"), "driver_version": "550.54.15",
            "compute_cap": gpu.get("compute", "[N/A]"), "ecc.mode.current": MODES[gpu.get("ecc", "")],
            "mig.mode.current": MODES[gpu.get("mig", "")], "persistence_mode": MODES[gpu.get("persistence", "")]}


def main():
    query, form = sys.argv[1:]
    kind, _, fields = query.removeprefix("--query-").partition("=")
    if form != "--format=csv,noheader,nounits" or kind not in ("gpu", "compute-apps"):
        sys.exit(f"unknown words: {sys.argv[1:]}")
    pids = users()
    if kind == "compute-apps":
        rows = [{"pid": pid, "used_memory": EACH} for pid in pids]
    else:
        with open(os.environ["FAKE_NVML_GPUS"], encoding="utf-8") as lines:
            rows = [fields_of(dict(item.split("=", 1) for item in line.strip().split(";")), pids) for line in lines]
    for row in rows:
        print(", ".join(str(row[name]) for name in fields.split(",")))


main()
