"""The systemd unit and the container file start the service with arguments that it accepts, as an unprivileged user."""

import json
import shlex
from pathlib import Path

from elfnet.cli.serve import parser

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def test_the_unit_starts_the_service() -> None:
    settings = [
        line.partition("=")[::2] for line in (DEPLOY / "elfnet.service").read_text().splitlines() if "=" in line
    ]
    command = shlex.split(dict(settings)["ExecStart"])
    assert command[:2] == ["/opt/elfnet/bin/elfnet", "serve"]
    args = parser().parse_strictly(command[2:])
    assert (args.port, args.workers, args.metrics_port) == (8000, 2, 9100)
    for hardening in (("DynamicUser", "yes"), ("ProtectSystem", "strict"), ("NoNewPrivileges", "yes")):
        assert hardening in settings


def test_the_container_starts_the_service() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    command = json.loads(next(line for line in lines if line.startswith("ENTRYPOINT ")).removeprefix("ENTRYPOINT "))
    assert command[:2] == ["/opt/elfnet/bin/elfnet", "serve"]
    assert parser().parse_strictly([*command[2:], "--allow-host", "localhost"]).host == "0.0.0.0"
    assert "USER 10001:10001" in lines
    assert any("--read-only" in line for line in lines)
