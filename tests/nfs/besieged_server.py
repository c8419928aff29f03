# SPDX-License-Identifier: BSD-2-Clause
"""A whole server with limits that are soon reached, until its input ends: a process of a test."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rpc.rdma_server import Options

LEASE_S = 4
CLIENTS_MOST = 512
SESSIONS_MOST = 512
STATES_MOST = 256
OPEN_FILES_MOST = 200
RDMA_CONNECTIONS = 10
RDMA_PORT = 20049
CREDITS = 16
READY = b"ready\n"
FILE_BYTES_MOST = 64 << 20  # whatever somebody asks for, the disk is not filled


def main() -> None:
    export, state, control, address = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MOST, FILE_BYTES_MOST))
    options = ServiceOptions(
        addresses=[address],
        tcp_port=0,
        rdma_port=RDMA_PORT,
        threads=2,
        state=Path(state),
        control=Path(control),
        config=Config(
            lease_s=LEASE_S,
            grace_s=LEASE_S,
            clients_most=CLIENTS_MOST,
            sessions_most=SESSIONS_MOST,
            states_most=STATES_MOST,
            open_files_most=OPEN_FILES_MOST,
        ),
        rdma=Options(
            window_bytes=4 << 20,
            credits=CREDITS,
            credits_max=64,
            connections=RDMA_CONNECTIONS,
            workers=2,
            gathered_bytes=2 << 20,
            stall_s=1.0,
        ),
    )
    with NfsService(Path(export), options):
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
