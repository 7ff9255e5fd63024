#!/usr/bin/env python3
"""Which GPUs a job gets, by --nproc_per_node gpu and CUDA_VISIBLE_DEVICES; bindings; what env, doctor and preflight say."""

import ctypes
import json
import os
import unittest
from pathlib import Path

from gpu_bed import BACKEND, ON_GPU, figure, nvidia_smi
from cards import WHOLE_GPU, CardCase

# Findings of `ddprun doctor` that mean a fault of a card or its driver rather than a matter of taste (docs/ENV.md).
OF_THE_CARD = {"driver_not_answering", "gpu_not_answering", "visible_devices_wrong", "gpus_hidden", "gpu_memory_errors",
               "gpu_memory_worn", "gpu_reset_needed", "gpus_in_use", "gpu_memory_taken", "gpus_mixed", "ecc_differs",
               "persistence_off", "torch_without_cuda", "driver_too_old"}


class DevicesCase(CardCase):
    def saw(self, nproc, *options, host, status=0, torch=False, **variables):
        """What the workers of a job saw, by rank, and what ddprun printed."""
        before = len(self.bed.journal.find("saw"))
        agent = self.launch(nproc, options, "see.py", self.bed.journal.path, *(["--torch"] if torch else []),
                            name=f"agent{len(self.bed.agents)}", env=variables, host=host)
        self.finish_job(agent, status)
        self.bed.follower.refresh()
        return sorted(self.bed.journal.find("saw")[before:], key=lambda line: line["rank"]), agent.text()


class Workers(DevicesCase):
    """Can fail: a twin's second machine has two GPUs, and as many workers."""

    def test_as_many_workers_as_gpus(self):
        for gpus in (1,) if ON_GPU else (1, 2):
            host = self.machine(gpus)
            uuids = [line[0] for line in nvidia_smi("uuid")]
            for word in ("gpu", "auto"):
                with self.subTest(gpus=gpus, word=word):
                    workers, _ = self.saw(word, host=host)
                    self.assertEqual(list(range(len(uuids))), [worker["local_rank"] for worker in workers])
                    for worker in workers:
                        self.assertEqual((len(uuids), None), (worker["world"], worker["visible"]))
                        if ON_GPU:
                            self.assertEqual(sorted(uuids), sorted(worker["uuids"]))

    def test_visible_devices(self):
        """By number, by UUID, by the names of parts of a divided GPU (which only the driver could resolve), and none."""
        host = self.machine(2)
        uuid = nvidia_smi("uuid")[0][0]
        mig = "MIG-11111111-2222-3333-4444-555555555555,MIG-66666666-7777-8888-9999-000000000000"
        cases = [("gpu", "0", 1, "0"), ("auto", uuid, 1, uuid), ("gpu:0", uuid, 1, uuid), ("gpu", mig, 2, mig)]
        if not ON_GPU:
            cases += [("gpu", "1,0", 2, "1,0"), ("gpu:1", "1,0", 1, "0"), ("gpu:1", None, 1, "1")]
        for word, visible, count, told in cases:
            with self.subTest(word=word, visible=visible):
                workers, _ = self.saw(word, host=host, **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))
                self.assertEqual([told] * count, [worker["visible"] for worker in workers])
                if ON_GPU and visible != mig:
                    self.assertEqual([[uuid]], [worker["uuids"] for worker in workers])

    def test_none_is_visible(self):
        host = self.machine(1)
        workers, text = self.saw("gpu", host=host, status=1, CUDA_VISIBLE_DEVICES="")
        self.assertEqual([], workers)
        self.assertIn("--nproc_per_node 'gpu': Cuda is not available", text)
        workers, _ = self.saw("auto", host=host, CUDA_VISIBLE_DEVICES="")
        self.assertEqual(self.run_json("env")["cpu"]["usable"], len(workers))
        self.assertIn(workers[0]["uuids"], ([], None))

    def test_torch_computes_on_the_worker_s_gpu(self):
        workers, _ = self.saw(1, host=self.machine(1), torch=True, CUDA_VISIBLE_DEVICES=nvidia_smi("uuid")[0][0])
        name = self.card("name")["name"]
        expected = {"available": True, "count": 1, "name": name, "sum": 3} if ON_GPU else \
            {"available": False, "count": 0, "name": None, "sum": None}
        self.assertEqual([expected], [worker["torch"] for worker in workers])


class Binding(DevicesCase):
    """Can fail: without the option no CPUs are reported, and with the fallback the start's line says so."""

    def why_not(self):
        """Why no worker can be bound near its GPU here."""
        try:
            ctypes.CDLL("libhwloc.so.15")
        except OSError:
            return "hwloc"
        pci = self.card("pci.bus_id")["pci.bus_id"].lower()[4:]  # the kernel's domain has four digits
        return "" if not ON_GPU or Path(f"/sys/bus/pci/devices/{pci}/numa_node").exists() else pci

    def near_the_card(self):
        """Usable CPUs of the first GPU's NUMA node; of one whose node isn't known they are the first node's."""
        node = 0
        if ON_GPU:
            pci = self.card("pci.bus_id")["pci.bus_id"].lower()[4:]
            node = max(0, int(Path(f"/sys/bus/pci/devices/{pci}/numa_node").read_text(encoding="ascii")))
        cpus = set()
        for part in Path(f"/sys/devices/system/node/node{node}/cpulist").read_text(encoding="ascii").strip().split(","):
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
        return sorted(cpus & os.sched_getaffinity(0))

    def test_near_the_card(self):
        host, why_not = self.machine(1), self.why_not()
        for mode in ("node", "socket", "exclusive") if not why_not else ():
            with self.subTest(mode=mode):
                workers, _ = self.saw(1, "--numa_binding", mode, host=host)
                told = self.bed.event("worker_started", count=len(self.bed.agents))["cpus"]
                self.assertTrue(told)
                if mode != "socket":  # which has all of its nodes
                    self.assertEqual(self.near_the_card(), workers[0]["cpus"])
        if why_not:
            figure("binding_possible", 0, "")
            _, text = self.saw(1, "--numa_binding", "node", "--binding_fallback", host=host)
            self.assertIn("workers are not bound", text)
            self.skipTest(f"workers can't be bound here: {why_not} isn't there")
        figure("binding_possible", 1, "")

    def test_twin_without_a_gpu(self):
        """One of two workers has no GPU: an error, or with --binding_fallback a warning."""
        _, text = self.saw(2, "--numa_binding", "node", host=self.machine(1), status=1, CUDA_VISIBLE_DEVICES="0")
        self.assertRegex(text, r"there is 1 GPU for 2 workers|there are 1 GPUs for 2 workers|hwloc|numa_node")
        workers, text = self.saw(2, "--numa_binding", "node", "--binding_fallback", host=self.machine(1),
                                 CUDA_VISIBLE_DEVICES="0")
        self.assertEqual(2, len(workers))
        self.assertIn("workers are not bound", text)


class Words(CardCase):
    def test_env_names_the_card(self):
        """Can fail: nvidia-smi asks the driver on a way of its own."""
        machine = self.run_json("env")
        card = self.card("name", "uuid", "pci.bus_id", "memory.total", "driver_version", "compute_cap", "ecc.mode.current",
                         "persistence_mode", "mig.mode.current")
        gpu = machine["gpus"][0]
        self.assertEqual(len(nvidia_smi("uuid")), len(machine["gpus"]))
        self.assertEqual([card[field] for field in ("name", "uuid", "compute_cap", "driver_version")],
                         [gpu["name"], gpu["uuid"], gpu["compute_capability"], machine["driver"]["version"]])
        self.assertEqual(card["pci.bus_id"].lower(), gpu["pci_id"].lower())
        self.assertLessEqual(abs(int(card["memory.total"]) - gpu["memory_bytes"] / 2 ** 20), 1)
        modes = {"Enabled": True, "Disabled": False}
        for field, key in (("ecc.mode.current", "ecc"), ("persistence_mode", "persistence"), ("mig.mode.current", "mig")):
            self.assertEqual(modes.get(card[field]), gpu[key], field)
        text = self.run_ddprun("env").stdout
        self.assertIn(f"driver {card['driver_version']}, runs CUDA up to {machine['driver']['cuda']}", text)
        self.assertIn(f"  0  {card['name']}, ", text)

    def card_findings(self):
        report = self.run_json("doctor", status=None)
        self.run_ddprun("doctor", status=1 if report["errors"] else 0)
        return {finding["id"] for finding in report["findings"]} & OF_THE_CARD

    def test_doctor_finds_nothing_wrong_of_the_card(self):
        """Can fail: a twin's card with errors of memory is found."""
        machine = self.run_json("env")
        expected = {"persistence_off"} if self.card("persistence_mode")["persistence_mode"] == "Disabled" else set()
        built, runs = machine["python"]["torch_cuda"], machine["driver"]["cuda"]
        if not ON_GPU and built and int(built.split(".")[0]) > int(runs.split(".")[0]):
            expected.add("driver_too_old")  # the twin's
        self.assertEqual(expected, self.card_findings())
        if not ON_GPU:
            self.cards(WHOLE_GPU.replace("uncorrected=0", "uncorrected=4"))
            self.assertEqual(expected | {"gpu_memory_errors"}, self.card_findings())


class Preflight(CardCase):
    def test_two_ranks_on_the_card(self):
        """DDP and all-reduce over NCCL; both ranks see the card as their own first one. Can fail: a rank that takes the CPU is
        named so."""
        self.bed.environment["CUDA_VISIBLE_DEVICES"] = "0,0"
        agent = self.bed.run("test", ["test", "--standalone", "--nproc_per_node", 2, "--virtual_local_rank", "--json"])
        self.finish_job(agent)
        text = agent.text()
        torch = json.loads(text[text.index("\n{") if "\n{" in text else text.index("{"):text.rindex("}") + 1])["torch"]
        self.assertEqual((BACKEND, 1 if ON_GPU else 0), (torch["backend"], torch["gpus"]))
        self.assertEqual([f"{'GPU 0' if ON_GPU else 'CPU'} of {os.uname().nodename}"] * 2, torch["all"]["devices"])
        self.assertEqual(1010, torch["all"]["parameters"])
        rows = torch["all_reduce"]
        self.assertTrue(rows)
        for row in rows:
            self.assertGreater(row["busbw_gb_s"], 0)
            self.assertAlmostEqual(row["algbw_gb_s"], row["busbw_gb_s"])  # 2 (n - 1) / n of two
        best = max(rows, key=lambda row: row["busbw_gb_s"])
        figure("preflight_shared_card_busbw", best["busbw_gb_s"], "GB/s")
        figure("preflight_shared_card_8_bytes", rows[0]["time_us"], "us")
        figure("preflight_ten_steps_alone", torch["alone"]["seconds"], "s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
