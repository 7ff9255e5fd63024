#!/usr/bin/env python3
"""Pods as processes: with the arguments and variables of deploy/kubernetes they meet and train; nothing else is named."""

import os
import subprocess
import sys

import job
import kubernetes
from bed import DDPRUN, ROOT, SLOW

TRAINING = os.path.join(ROOT, "tests", "support", "saving_worker.py")


class Kubernetes(job.ClusterTestCase):
    def pods_of(self, manifest):
        """(pods, the options and the plain variables) of a Job's manifest."""
        if kubernetes.why_not():
            self.skipTest(kubernetes.why_not())
        (template, count), = [pods for resource in kubernetes.render(manifest) for pods in kubernetes.pod_templates(resource)]
        container = kubernetes.container_of(template)
        variables = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        return kubernetes.Pods(self.bed, self.cluster, "train", count), kubernetes.own_options(container), variables

    def training(self, step_ms=20, steps=20):
        return ["--event_log", self.bed.events.path, TRAINING, self.bed.journal.path, self.bed.folder, str(step_ms), str(steps)]

    def workers(self, count, world):
        def there():
            lines = self.bed.journal.find("worker", run="train", world=world)
            return lines if len(lines) >= count else None
        return sorted(self.bed.wait(there, f"{count} workers of {world}"), key=lambda line: line["rank"])

    def healthy(self, index):
        """What GET /healthz of a pod says."""
        program = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{kubernetes.HEALTH_PORT}/healthz').status)"
        command = self.cluster.command(index + 1, [sys.executable, "-c", program])
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def test_the_base_trains(self):
        pods, options, variables = self.pods_of("base")
        # Long enough for both to be asked how they are, also where Python takes seconds to start.
        agents = [pods.start(i, [*options, *self.training(steps=200)], {**variables, "JOB_COMPLETION_INDEX": str(i)})
                  for i in (1, 0)]
        workers = self.workers(2, world=2)
        self.assertEqual(["train-0", "train-1"], [line["host"] for line in workers])
        self.assertEqual({f"train-0.{kubernetes.DOMAIN}"}, {line["environment"]["MASTER_ADDR"] for line in workers})
        self.assertEqual(["200", "200"], [self.healthy(i) for i in range(2)])
        for agent in agents:
            self.assert_status(0, agent)
        self.assertIn(f"Kubernetes: pod 0 of train, 2 nodes, 1 worker on each, rendezvous at train-0.{kubernetes.DOMAIN}",
                      agents[1].text())

    def test_without_detection_each_pod_is_refused(self):
        """Negative control."""
        pods, options, variables = self.pods_of("base")
        agent = pods.start(1, [*options, *self.training()],
                           {**variables, "JOB_COMPLETION_INDEX": "1", "PET_NO_KUBERNETES": "1", "PET_RDZV_BACKEND": "c10d",
                            "PET_RDZV_CONF": "join_timeout=1"})
        self.assert_status(1, agent)
        self.assertEqual([], self.bed.journal.find("worker"))

    def test_a_pod_of_an_elastic_job_is_lost_and_comes_back(self):
        pods, options, variables = self.pods_of("elastic")
        self.assertEqual("2:4", variables["PET_NNODES"])
        line = [*options, "--rdzv_conf", "last_call_timeout=2", *self.training(step_ms=50, steps=200)]

        def start(index):
            return pods.start(index, line, {**variables, "JOB_COMPLETION_INDEX": str(index)})
        agents = [start(i) for i in range(3)]
        self.workers(3, world=3)
        agents[1].signal(9)
        self.workers(2, world=2)
        again = start(1)
        lines = self.workers(6, world=3)
        self.assertEqual(2, len([line for line in lines if line["host"] == "train-1"]))
        for agent in (agents[0], agents[2], again):
            self.assert_status(0, agent, timeout=40 * SLOW)

    def test_a_pytorchjob_of_an_old_operator(self):
        """RANK and WORLD_SIZE count its pods; the master's MASTER_ADDR is localhost."""
        def replica(rank):
            environment = {**self.bed.environment, "KUBERNETES_SERVICE_HOST": "10.96.0.1", "WORLD_SIZE": "2", "RANK": str(rank),
                           "MASTER_ADDR": "n1" if rank else "localhost", "MASTER_PORT": "23456"}
            command = self.cluster.command(rank + 1, [DDPRUN, "--nproc_per_node=2", *self.training()])
            return self.bed.start_process(f"replica{rank}", command, output=self.bed.path(f"replica{rank}.out"),
                                          env=environment)
        agents = [replica(1), replica(0)]
        workers = self.bed.wait(lambda: self.bed.journal.find("worker", world=4)[3:] and self.bed.journal.find("worker"),
                                "four workers")
        self.assertEqual({"n1"}, {line["environment"]["MASTER_ADDR"] for line in workers})
        self.assertEqual(["n1", "n1", "n2", "n2"], [line["host"] for line in sorted(workers, key=lambda line: line["rank"])])
        for agent in agents:
            self.assert_status(0, agent)


if __name__ == "__main__":
    job.main()
