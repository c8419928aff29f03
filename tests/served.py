# SPDX-License-Identifier: BSD-2-Clause
"""Serves a new directory as a server that acts for several users, which needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from needs import needs


@contextmanager
def served(directory: Path, address: str, port: int, **options: Any) -> Iterator[NfsService]:
    """Runs a server over RDMA alone, unless `options` have a TCP port. Clients keep their ids."""
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export = directory / "export"
    export.mkdir()
    wanted = {"tcp_port": None, "config": Config(squash="none"), **options}
    with NfsService(
        export,
        ServiceOptions(addresses=[address], rdma_port=port, state=directory / "state", **wanted),
    ) as service:
        yield service
