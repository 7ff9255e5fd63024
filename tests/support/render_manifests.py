#!/usr/bin/env python3
"""The resources of a kustomization, one JSON list: render_manifests.py FOLDER

What deploy/kubernetes uses of kustomize: resources, and patches by JSON pointers (RFC 6902). Runs in the environment
py-kubernetes, which has the two libraries.
"""

import json
import os
import sys

import jsonpatch
import yaml


def load(*path):
    with open(os.path.join(*path), encoding="utf-8") as source:
        return list(yaml.safe_load_all(source))


def render(folder):
    (kustomization,) = load(folder, "kustomization.yaml")
    unknown = set(kustomization) - {"apiVersion", "kind", "resources", "patches"}
    if unknown:
        sys.exit(f"{folder}: {sorted(unknown)} is more of kustomize than this program knows")
    resources = []
    for name in kustomization.get("resources", []):
        path = os.path.join(folder, name)
        resources += render(path) if os.path.isdir(path) else load(path)
    for patch in kustomization.get("patches", []):
        target = patch["target"]
        (operations,) = load(folder, patch["path"])
        (index,) = [i for i, resource in enumerate(resources)
                    if resource["kind"] == target["kind"] and resource["metadata"]["name"] == target["name"]]
        resources[index] = jsonpatch.apply_patch(resources[index], operations)
    return resources


if __name__ == "__main__":
    json.dump(render(sys.argv[1]), sys.stdout)
