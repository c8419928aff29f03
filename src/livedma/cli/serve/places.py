"""Where a server's files are, unless it is told otherwise."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["SERVICES", "control_directory", "default_control"]

SERVICES = Path("/run/livedma")  #: of the unit file


def control_directory() -> Path:
    """Where servers of this user have their control sockets."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or ("/run" if os.geteuid() == 0 else "/tmp"))
    return base / "livedma"


def default_control() -> Path:
    return control_directory() / f"serve-{os.getpid()}"
