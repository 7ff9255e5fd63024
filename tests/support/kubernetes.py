"""The manifests of deploy/kubernetes, and what Kubernetes makes of them for a process in a pod."""

import json
import os
import subprocess

from bed import CACHE, DDPRUN, ROOT

MANIFESTS = os.path.join(ROOT, "deploy", "kubernetes")
PYTHON = os.path.join(CACHE, "py-kubernetes", "bin", "python3")
DOMAIN = "train.default.svc.cluster.local"
HEALTH_PORT = 8081


def why_not():
    """Why manifests can't be read here; '' when they can."""
    return "" if os.access(PYTHON, os.X_OK) else f"no {PYTHON}: scripts/setup installs it"


def render(name):
    """[resource] of an overlay of deploy/kubernetes."""
    program = os.path.join(ROOT, "tests", "support", "render_manifests.py")
    result = subprocess.run([PYTHON, program, os.path.join(MANIFESTS, name)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return json.loads(result.stdout)


def pod_templates(resource):
    """[(pod template, number of pods)] of a Job, a JobSet or a PyTorchJob."""
    spec = resource["spec"]
    if resource["kind"] == "Job":
        return [(spec["template"], spec["completions"])]
    if resource["kind"] == "JobSet":
        return [(job["template"]["spec"]["template"], job["replicas"] * job["template"]["spec"]["completions"])
                for job in spec["replicatedJobs"]]
    if resource["kind"] == "PyTorchJob":
        return [(replica["template"], replica["replicas"]) for replica in spec["pytorchReplicaSpecs"].values()]
    return []


def container_of(template):
    (container,) = template["spec"]["containers"]
    return container


def own_options(container):
    """ddprun's options among the arguments, without those of how the program is started."""
    arguments = container["args"]
    return arguments[:arguments.index("--no_python")]


class Pods:
    """Pods of an indexed Job on a cluster.Cluster's hosts: pod i is on host i + 1."""

    def __init__(self, bed, cluster, name, count):
        self.bed, self.cluster, self.name, self.count = bed, cluster, name, count

    def hostname(self, index):
        return f"{self.name}-{index}"

    def start(self, index, arguments, environment, hostname=None):
        """`ddprun arguments` as the process of a pod. Its hosts file begins as kubelet's; the rest is what DNS would say."""
        hostname = hostname or self.hostname(index)
        others = "".join(f"10.77.0.{i + 1} {self.hostname(i)}.{DOMAIN}\n" for i in range(self.count) if i != index)
        self.cluster.set_file(index + 1, "/etc/hosts", "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
                              f"10.77.0.{index + 1}\t{hostname}.{DOMAIN}\t{hostname}\n{others}")
        command = self.cluster.command(index + 1, ["sh", "-c", 'hostname "$0" && exec "$@"', hostname, DDPRUN, *arguments])
        name = f"{hostname}-{len(self.bed.agents)}"
        return self.bed.start_process(name, command, output=self.bed.path(f"{name}.out"), env={
            **self.bed.environment, "KUBERNETES_SERVICE_HOST": "10.96.0.1", **environment})
