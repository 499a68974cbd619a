"""What can be said of `docker/` without building: commands exist, versions agree, nothing runs as root."""

import re

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from dsopt.cli.main import dsopt
from dsopt.version import __version__
from tests.docker.files import (
    COMPOSE,
    COMPOSE_TEXT,
    DOCKER,
    DOCKERFILE,
    K8S_TEXT,
    ROOT,
    all_commands,
    containers,
    filled_in,
    instructions,
    templates,
    variables,
)


@pytest.mark.parametrize("args", all_commands(), ids=" ".join)
def test_each_command_is_one_of_dsopt_with_options_that_it_has(args: list[str]) -> None:
    command: click.Command = dsopt
    context = None
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context)
        name, found, args = command.resolve_command(context, list(args))
        assert found is not None, name
        command = found
    command.make_context(command.name, list(args), parent=context)  # parses, and runs nothing


def test_each_variable_of_dsopt_is_one_that_dsopt_reads() -> None:
    given = {key for service in COMPOSE["services"].values() for key in service.get("environment", {})}
    given |= {entry["name"] for container in containers() for entry in container.get("env", [])}
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "dsopt").rglob("*.py"))
    own = {name for name in given if name.startswith("DSOPT_")}
    assert own
    assert {name for name in own if f'"{name}"' not in sources} == set()


def test_the_image_runs_as_a_user_and_copies_what_is_there() -> None:
    found = instructions()
    values = dict(argument.split("=", 1) for kind, argument in found if kind == "ARG" and "=" in argument)
    user = [argument for kind, argument in found if kind == "USER"][-1]
    uid = re.sub(r"\$\{(\w+)\}", lambda name: values[name[1]], user).split(":")[0]
    assert int(uid) > 0
    for kind, argument in found:
        if kind == "COPY" and "--from" not in argument:
            *sources, _ = [word for word in argument.split() if not word.startswith("--")]
            assert all((ROOT / source).exists() for source in sources), argument
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert ignored[0] == "*"
    assert all((ROOT / line[1:]).exists() for line in ignored if line.startswith("!"))
    assert ("ENTRYPOINT", '["tini", "--", "dsopt"]') in found


def test_every_image_has_a_version_and_dsopts_is_this_one() -> None:
    images = [filled_in(service["image"]) for service in COMPOSE["services"].values()]
    images += [container["image"] for container in containers()]
    images += re.findall(r"BASE=(\S+)", DOCKERFILE)
    assert len(images) > 8
    assert all(re.search(r":\d\S*$", image) and not image.endswith("latest") for image in images), images
    texts = DOCKERFILE + COMPOSE_TEXT + K8S_TEXT + (DOCKER / ".env.example").read_text("utf-8")
    assert set(re.findall(r"dsopt:(\d+\.\d+\.\d+)", texts)) == {__version__}
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    rays = re.findall(r"(?:rayVersion: |ray\[default\]==)([\d.]+\d)", K8S_TEXT)
    assert [f"ray=={version}\n" in constraints for version in rays] == [True, True]


def test_the_example_of_an_environment_has_each_variable_with_its_default() -> None:
    lines = (DOCKER / ".env.example").read_text("utf-8").splitlines()
    assert dict(line.split("=", 1) for line in lines if line and not line.startswith("#")) == variables()


def test_services_and_pods_may_do_no_more_than_they_need() -> None:
    for service in COMPOSE["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert set(service["secrets"]) <= set(COMPOSE["secrets"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for container in containers():
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert "memory" in container["resources"]["limits"]
    for template in templates():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        mounted = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_no_password_is_in_a_file_of_the_repository() -> None:
    texts = {
        path: path.read_text("utf-8") for path in DOCKER.rglob("*") if path.is_file() and "secrets" not in path.parts
    }
    for path, text in texts.items():
        assert not re.search(r"postgresql://[^$\s]+:[^$\s]+@", text.replace("dsopt_$role:$(cat", "")), path
    assert all(set(entry) == {"file"} for entry in COMPOSE["secrets"].values())


def test_the_image_installs_all_that_dsopt_needs_in_the_tested_versions() -> None:
    assert any("PIP_CONSTRAINT=/src/constraints.txt" in argument for kind, argument in instructions() if kind == "ENV")
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in lines)}
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    listed = project.partition("dependencies = [")[2].partition("\n]")[0]
    needed = [Requirement(text) for text in re.findall(r'^\s*"([^"]+)"', listed, re.MULTILINE)]
    assert len(needed) > 10
    for requirement in needed:
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement
