"""A server from its start to its end, as a command."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from livedma.cli import logs
from livedma.cli.serve import web
from livedma.cli.serve.building import steering, wishes
from livedma.control.running import controlled
from livedma.nfs.held import allow_all_descriptors
from livedma.nfs.service import NfsService

if TYPE_CHECKING:
    from livedma.cli.serve.settings import Settings

__all__ = ["serve"]


def serve(settings: Settings) -> int:
    """Until it is told to end; the exit status."""
    args = settings.values
    allow_all_descriptors()
    wanted, steered = wishes(args), steering(args)
    assert wanted.control is not None
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    logs.start(args.log_level)
    with web.listening(args) as socket, NfsService(args.directory, wanted) as service:
        _say(f"livedma: serving {args.directory}")
        for tcp in service.tcp:
            _say(f"  TCP port {tcp.port}, {' '.join(args.listen) or 'all addresses'}")
        for rdma in service.rdma:
            _say(f"  RDMA port {rdma.port}, {rdma.device.address}")
        with (
            controlled(service, steered) as running,
            web.page(args, socket, running, wanted.control, _say),
        ):
            _say(f"  control socket {wanted.control}")
            running.start()
            try:
                stopped.wait()
            except KeyboardInterrupt:
                _say("")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
