"""What the linter of Dockerfiles and the schemas of Compose and Kubernetes say of `docker/`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from kubernetes_validate import ValidationError, validate

from tests.docker.files import DOCKER, K8S, K8S_FILES, templates
from tests.docker.kuberay import RAY_JOB

KUBERNETES = ("1.25", "1.37")  # oldest and newest whose schemas the checker has


def check(name: str, *args: str | Path) -> None:
    """Runs a checker, which `make install` puts beside Python."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip(f"{name} is not installed here")
    done = subprocess.run([found, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    check("hadolint", DOCKER / "Dockerfile")


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_compose_files_fit_their_schema(name: str) -> None:
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / name)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", K8S_FILES, ids=lambda path: path.name)
def test_kubernetes_manifests_fit_their_schema(path: Path, version: str) -> None:
    documents = list(yaml.safe_load_all(path.read_text("utf-8")))
    for document in documents:
        if document["kind"] == "RayJob":  # KubeRay's, which the checker does not have; its pods are Kubernetes'
            jsonschema.validate(document, RAY_JOB)
        else:
            validate(document, version, strict=True)
    for template in templates(documents):
        named = {**template["metadata"], "name": "a"}
        validate({"apiVersion": "v1", "kind": "Pod", **template, "metadata": named}, version, strict=True)


def test_the_schema_refuses_a_key_that_kubernetes_does_not_have() -> None:
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"port": 80}}
    with pytest.raises(ValidationError):
        validate(document, KUBERNETES[-1], strict=True)


@pytest.mark.parametrize("key", ["entryPoint", "ttlSecondsAfterFinish"])
def test_the_schema_refuses_a_key_that_kuberay_does_not_have(key: str) -> None:
    [document] = [one for one in K8S if one["kind"] == "RayJob"]
    with pytest.raises(jsonschema.ValidationError, match=key):
        jsonschema.validate({**document, "spec": {**document["spec"], key: 1}}, RAY_JOB)
