# SPDX-License-Identifier: BSD-2-Clause
"""livedma doctor as a process: what it says, for tests."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from livedma.lab.hosts import Host

__all__ = ["Diagnosis", "diagnose", "shell"]

_PATIENCE_S = 60


@dataclass(frozen=True)
class Diagnosis:
    status: int
    said: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.said["findings"]
        return found

    def all(self, name: str, **facts: object) -> list[dict[str, Any]]:
        """Findings of a name whose facts are these."""
        return [
            one
            for one in self.findings
            if one["name"] == name and facts.items() <= one["facts"].items()
        ]

    def one(self, name: str, **facts: object) -> dict[str, Any]:
        found = self.all(name, **facts)
        assert len(found) == 1, found
        return found[0]


def diagnose(*before: str, arguments: tuple[str, ...] = ()) -> Diagnosis:
    """before: what the command line starts with, such as a way into a namespace."""
    done = subprocess.run(
        [*before, "livedma", "doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    assert done.stderr == ""
    return Diagnosis(done.returncode, json.loads(done.stdout))


def shell(command: str, host: Host | None = None) -> None:
    """Runs a fix as it stands, as a user does that copies it into a shell."""
    argv = ["sh", "-ec", command]
    subprocess.run(host.command(*argv) if host else argv, check=True, timeout=_PATIENCE_S)
