#!/usr/bin/env python3
"""What is wrong with the JobSets and PyTorchJobs of a JSON list by their operators' own types: check_operators.py FILE

Prints one line for each mistake; nothing, with status 0, when there is none. The types are those of the operators' Python
clients (kubeflow-trainer-api brings JobSet's), as JSON schemas that forbid what they don't know; types of Kubernetes itself,
such as a Job's or a pod's, may be anything here. Runs in the environment py-kubernetes, isolated (-I): its neighbour
kubernetes.py isn't Kubernetes' client.
"""

import json
import re
import sys

import jsonschema
from kubeflow.training import models as kubeflow
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

_PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def strict(schema):
    """The schema, where no object may have properties that aren't named; nor null, which a manifest has no use for."""
    if isinstance(schema, list):
        return [strict(part) for part in schema if part != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    schema = {name: strict(part) for name, part in schema.items() if name != "default"}
    if len(schema.get("anyOf", ())) == 1:
        schema |= schema.pop("anyOf")[0]
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def jobset():
    schema = strict(JobsetV1alpha2JobSet.model_json_schema(by_alias=True))
    return {**schema, "$defs": {name: {} if name.startswith("IoK8s") else part for name, part in schema["$defs"].items()}}


def of_type(name):
    """The schema of a type as kubeflow-training writes it."""
    if name in _PLAIN:
        return {"type": _PLAIN[name]}
    if match := re.fullmatch(r"list\[(.*)\]", name):
        return {"type": "array", "items": of_type(match[1])}
    if match := re.fullmatch(r"dict\(str, (.*)\)", name):
        return {"type": "object", "additionalProperties": of_type(match[1])}
    if not name.startswith("KubeflowOrg"):
        return {}
    model = getattr(kubeflow, name)
    properties = {model.attribute_map[field]: of_type(kind) for field, kind in model.openapi_types.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def main():
    schemas = {"JobSet": jobset(), "PyTorchJob": of_type("KubeflowOrgV1PyTorchJob")}
    with open(sys.argv[1], encoding="utf-8") as source:
        resources = json.load(source)
    wrong = 0
    for resource in resources:
        schema = schemas.get(resource["kind"])
        for error in jsonschema.Draft202012Validator(schema).iter_errors(resource) if schema else ():
            print(f"{resource['kind']}: {'.'.join(map(str, error.absolute_path))}: {error.message}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
