#!/usr/bin/env python3
"""deploy/kubernetes: the manifests are right by Kubernetes' schemas and its operators' types, and agree with ddprun."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import kubernetes  # noqa: E402
from bed import DDPRUN, ROOT  # noqa: E402

OVERLAYS = ["base", "elastic", "jobset", "pytorchjob"]
# The oldest whose Job has what base and elastic use, and the newest that the package knows.
VERSIONS = ["1.31.0", "1.37.0"]
CHECK_OPERATORS = os.path.join(ROOT, "tests", "support", "check_operators.py")
# What a pod needs beyond --grace: the keeper's KILL, the verdict to the service.
GRACE_MARGIN = 5


def builtin(resource):
    """The resources by kinds of Kubernetes itself in which those of a JobSet or PyTorchJob are written down."""
    if resource["kind"] == "JobSet":
        return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]}
                for job in resource["spec"]["replicatedJobs"]]
    if resource["kind"] == "PyTorchJob":
        return [{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "replica"}, "template": template}
                for template, _ in kubernetes.pod_templates(resource)]
    return [resource]


@unittest.skipUnless(kubernetes.why_not() == "", kubernetes.why_not())
class Manifests(unittest.TestCase):
    def validate(self, resources, version):
        """kubernetes-validate's exit status and words."""
        folder = tempfile.mkdtemp(prefix="ddprun-manifests-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        paths = []
        for number, resource in enumerate(resources):
            paths.append(os.path.join(folder, f"{number}.yaml"))
            with open(paths[-1], "w", encoding="utf-8") as sink:
                json.dump(resource, sink)
        result = subprocess.run([kubernetes.PYTHON, "-m", "kubernetes_validate", "--strict", "-k", version, *paths],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def check_operators(self, resources):
        """check_operators.py's lines, one for each mistake; the status agrees with them."""
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as sink:
            json.dump(resources, sink)
            sink.flush()
            result = subprocess.run([kubernetes.PYTHON, "-I", CHECK_OPERATORS, sink.name], capture_output=True, text=True,
                                    check=False)
        lines = result.stdout.splitlines()
        self.assertEqual((1 if lines else 0, ""), (result.returncode, result.stderr))
        return lines

    def each_pod(self):
        """(overlay, pod template, its container, its plain variables, how many pods)"""
        for name in OVERLAYS:
            for resource in kubernetes.render(name):
                for template, count in kubernetes.pod_templates(resource):
                    container = kubernetes.container_of(template)
                    yield name, template, container, {entry["name"]: entry.get("value") for entry in container["env"]}, count

    def test_schemas(self):
        for version in VERSIONS:
            for name in OVERLAYS:
                with self.subTest(version=version, overlay=name):
                    resources = [part for resource in kubernetes.render(name) for part in builtin(resource)]
                    self.assertGreater(len(resources), 1)
                    status, words = self.validate(resources, version)
                    self.assertEqual(0, status, words)

    def test_a_wrong_word_is_found(self):
        """Negative control."""
        (job,) = [resource for resource in kubernetes.render("base") if resource["kind"] == "Job"]
        job["spec"]["template"]["spec"]["terminationGracePeriod"] = 40
        self.assertNotEqual(0, self.validate([job], VERSIONS[-1])[0])

    def test_operators_types(self):
        """What is around the Jobs and pods, by the types of JobSet and of Kubeflow's training operator."""
        resources = [resource for name in ("jobset", "pytorchjob") for resource in kubernetes.render(name)]
        self.assertLessEqual({"JobSet", "PyTorchJob"}, {resource["kind"] for resource in resources})
        self.assertEqual([], self.check_operators(resources))

    def test_wrong_words_for_operators_are_found(self):
        """Negative control."""
        by_kind = {resource["kind"]: resource for name in ("jobset", "pytorchjob") for resource in kubernetes.render(name)}
        by_kind["JobSet"]["spec"]["network"]["enableDnsHostnames"] = True
        by_kind["JobSet"]["spec"]["failurePolicy"]["maxRestarts"] = "3"
        by_kind["PyTorchJob"]["spec"]["runPolicy"]["cleanPods"] = "Running"
        by_kind["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "1"
        lines = self.check_operators(list(by_kind.values()))
        self.assertEqual(4, len(lines), lines)
        for word in ("enableDnsHostnames", "maxRestarts", "cleanPods", "Worker.replicas"):
            self.assertIn(word, "\n".join(lines))

    def test_kustomize_renders_the_same(self):
        tool = next((tool for tool in (["kustomize", "build"], ["kubectl", "kustomize"]) if shutil.which(tool[0])), None)
        if tool is None:
            self.skipTest("neither kustomize nor kubectl is installed: the overlays are rendered by tests/support alone")
        for name in OVERLAYS:
            result = subprocess.run([*tool, os.path.join(kubernetes.MANIFESTS, name)], capture_output=True, text=True,
                                    check=False)
            self.assertEqual(0, result.returncode, result.stderr)
            program = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)"
            parsed = subprocess.run([kubernetes.PYTHON, "-c", program], input=result.stdout, capture_output=True, text=True,
                                    check=True)
            by_kind = {resource["kind"]: resource for resource in json.loads(parsed.stdout)}
            self.assertEqual({resource["kind"]: resource for resource in kubernetes.render(name)}, by_kind)

    def test_pods_have_time_to_end(self):
        for name, template, container, _, _ in self.each_pod():
            (grace,) = [int(word.partition("=")[2]) for word in container["args"] if word.startswith("--grace=")]
            self.assertGreaterEqual(template["spec"]["terminationGracePeriodSeconds"], grace + GRACE_MARGIN, name)

    def test_options_and_variables_exist(self):
        text = subprocess.run([DDPRUN, "--help-all"], capture_output=True, text=True, check=True).stdout
        for name, _, container, variables, _ in self.each_pod():
            for word in [*kubernetes.own_options(container), "--no_python"]:
                self.assertIn(word.partition("=")[0].replace("_", "-"), text, name)
            for variable in variables:
                if variable.startswith("PET_"):
                    self.assertIn(variable, text, name)

    def test_as_many_pods_as_nodes(self):
        for name, _, _, variables, count in self.each_pod():
            if name == "pytorchjob":  # its operator says so
                self.assertNotIn("PET_NNODES", variables)
            else:
                self.assertEqual(str(count), variables["PET_NNODES"].split(":")[-1], name)

    def test_probes_ask_the_port_that_answers(self):
        for name, _, container, variables, _ in self.each_pod():
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            self.assertEqual(str(ports["health"]), variables["TORCHELASTIC_HEALTH_CHECK_PORT"], name)
            for probe in ("livenessProbe", "readinessProbe"):
                self.assertEqual({"path": "/healthz", "port": "health"}, container[probe]["httpGet"], name)

    def test_the_service_names_the_pods(self):
        for name in ("base", "elastic"):
            by_kind = {resource["kind"]: resource for resource in kubernetes.render(name)}
            service, pod = by_kind["Service"], by_kind["Job"]["spec"]["template"]
            self.assertEqual(service["metadata"]["name"], pod["spec"]["subdomain"])
            self.assertEqual("None", service["spec"]["clusterIP"])
            self.assertTrue(service["spec"]["publishNotReadyAddresses"])
            self.assertLessEqual(service["spec"]["selector"].items(), pod["metadata"]["labels"].items())


if __name__ == "__main__":
    unittest.main(verbosity=2)
