"""The files of `docker/` as data, and the `dsopt` commands in them."""

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
COMPOSE_TEXT = (DOCKER / "compose.yaml").read_text("utf-8")
K8S_FILES = sorted((DOCKER / "k8s").glob("*.yaml"))
K8S_TEXT = "---\n".join(path.read_text("utf-8") for path in K8S_FILES)
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
K8S: list[dict[str, Any]] = list(yaml.safe_load_all(K8S_TEXT))


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, without comments and with continued lines joined."""
    text = "\n".join(line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#"))
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], " ".join(line.split()[1:])) for line in lines if line.strip()]


def variables() -> dict[str, str]:
    """The variables that compose.yaml takes, with their defaults."""
    return dict(re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE_TEXT))


def filled_in(text: str, **values: str) -> str:
    """A text of compose.yaml with its variables: the given ones, else their defaults."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: values.get(found[1], found[2]), text)


def command_of(service: str, **values: str) -> list[str]:
    """What a service gives to the entry point."""
    command = COMPOSE["services"][service]["command"]
    return shlex.split(filled_in(command, **values)) if isinstance(command, str) else command


def templates(documents: list[dict[str, Any]] = K8S) -> list[dict[str, Any]]:
    """All templates of pods in Kubernetes manifests."""
    specs = [document["spec"] for document in documents]
    clusters = [spec["rayClusterSpec"] for spec in specs if "rayClusterSpec" in spec]
    groups = [group for one in clusters for group in (one["headGroupSpec"], *one["workerGroupSpecs"])]
    return [spec["template"] for spec in (*specs, *groups) if "template" in spec]


def containers() -> list[dict[str, Any]]:
    """All containers of the Kubernetes manifests."""
    specs = [template["spec"] for template in templates()]
    return [c for spec in specs for c in (*spec.get("initContainers", []), *spec["containers"])]


def all_commands() -> list[list[str]]:
    """Every `dsopt` command in these files and in `docs/operations.md`, those in comments included."""
    services = [command_of(name) for name in COMPOSE["services"] if name != "postgres"]
    run = re.findall(r"docker compose run --rm worker (.+)", COMPOSE_TEXT)
    told = re.findall(r"'dsopt ([^']+)'", DOCKERFILE + COMPOSE_TEXT + K8S_TEXT)
    told += re.findall(r"(?:^    |`)dsopt ([^`\n#]+)", OPERATIONS, re.MULTILINE)
    told += [document["spec"]["entrypoint"].removeprefix("dsopt ") for document in K8S if document["kind"] == "RayJob"]
    return [*services, *(c["args"] for c in containers() if "args" in c), *map(shlex.split, (*run, *told))]
