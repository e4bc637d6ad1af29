"""Tests of the files in deploy/: they parse, and every variable, command and path in them exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.api.app import make_app
from holdfast.settings import describe

DEPLOY = Path(__file__).parent.parent / "deploy"
OWN = {name for row in describe() for name in (row.name, *row.aliases)}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes/holdfast.yaml").read_text()))


def containers() -> list[dict[str, Any]]:
    pods = [thing["spec"]["template"]["spec"] for thing in KUBERNETES if "template" in thing.get("spec", {})]
    return [container for pod in pods for container in pod["containers"]]


def commands() -> list[list[str]]:
    composed = [service["command"] for service in COMPOSE["services"].values() if "command" in service]
    image = re.search(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert image is not None
    return [*composed, *(container["args"] for container in containers()), yaml.safe_load(image[1])]


@pytest.mark.parametrize("command", commands(), ids=shlex.join)
def test_every_command_is_one_of_ours(command: list[str]) -> None:
    assert command[0] == "holdfast"
    main = "from holdfast.cli import main; raise SystemExit(main())"
    told = subprocess.run([sys.executable, "-c", main, *command[1:], "--help"], capture_output=True, check=False)
    assert told.returncode == 0, told.stderr


def test_every_variable_of_ours_is_one_that_is_read() -> None:
    named = set(
        re.findall(r"\bHOLDFAST_[A-Z_]+", "".join(file.read_text() for file in DEPLOY.rglob("*") if file.is_file()))
    )
    assert named
    assert named <= OWN


def test_every_probe_asks_a_path_that_answers() -> None:
    paths = {
        container[probe]["httpGet"]["path"]
        for container in containers()
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")
        if "httpGet" in container.get(probe, {})
    }
    assert paths == {"/v1/health", "/v1/ready"}
    assert paths <= set(make_app(None).openapi()["paths"])


def test_servers_drive_nothing_and_workers_do() -> None:
    assert COMPOSE["services"]["api"]["environment"]["HOLDFAST_MAX_RUNS"] == "0"
    assert "HOLDFAST_MAX_RUNS" not in COMPOSE["services"]["worker"]["environment"]
    (api,) = [container for container in containers() if container["name"] == "api"]
    assert {"name": "HOLDFAST_MAX_RUNS", "value": "0"} in api["env"]


def test_pods_are_given_longer_to_stop_than_holdfast_takes() -> None:
    for thing in KUBERNETES:
        pod = thing.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            given = {item["name"]: item["value"] for item in container.get("env", ())}
            if "terminationGracePeriodSeconds" in pod:
                assert float(given.get("HOLDFAST_SHUTDOWN_SECONDS", 10)) < pod["terminationGracePeriodSeconds"]
