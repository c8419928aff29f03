# SPDX-License-Identifier: BSD-2-Clause
"""The reserve in a whole server: while a greedy client has every data buffer and every thread that
it can have, control traffic is answered. The same server without the reserve does not answer it.

The store is a filesystem that is frozen: who writes there waits in the kernel until it is thawed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.nfs import calling
from tests.nfs.accelerating import NAME, FileClient, Lab, LeftError, rdma_peer
from tests.nfs.calling import PUTROOTFH, op

from livedma.nfs.control import Control
from livedma.nfs.numbers import Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from livedma.rpc.rdma_server import Options, RdmaConnection
from needs import needs

OTHER = b"other"
BUFFER = 4096
#: One buffer for data, one thread of each kind; the reserve comes on top.
FEW = {"credits": 8, "mapped_bytes": 0, "buffer_bytes": BUFFER, "workers": 1}
FROZEN_MOST_S = 3 * rdma_peer.PATIENCE


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of its own, with two files."""
    needs(os.geteuid() == 0, "mounting takes root")
    image, at = tmp_path / "image", tmp_path / "export"
    image.write_bytes(b"")
    os.truncate(image, 8 << 20)
    at.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mount = subprocess.run(["mount", "-o", "loop", image, at], check=False)
    needs(mount.returncode == 0, "no image can be mounted here")
    try:
        for name in (NAME, OTHER):
            (at / name.decode()).write_bytes(bytes(BUFFER))
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


@contextmanager
def frozen(at: Path) -> Iterator[None]:
    """Whoever waits for it cannot be killed: another process thaws it, whatever becomes of this."""
    script = f'fsfreeze -f "$1" && echo frozen && timeout {FROZEN_MOST_S} cat; fsfreeze -u "$1"'
    keeper = subprocess.Popen(
        ["sh", "-c", script, "sh", at],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with keeper:
        assert keeper.stdout is not None and keeper.stdout.readline() == b"frozen\n"
        yield
        assert keeper.poll() is None, "it was thawed before"


def held() -> int:
    """How many threads of this process wait in the kernel and cannot be interrupted."""
    count = 0
    for status in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            count += status.read_text().rpartition(")")[2].split()[0] == "D"
    return count


@contextmanager
def serving(export: Path, reserve: int) -> Iterator[Lab]:
    with ExitStack() as stack:
        device = stack.enter_context(Device(rdma_peer.HERE))
        options = ServiceOptions(
            addresses=[rdma_peer.THERE],
            tcp_port=None,
            rdma_port=rdma_peer.PORT,
            threads=1,
            state=export.parent / "state",
            control=export.parent / "control",
            config=Config(squash="none"),
            rdma=Options(**(rdma_peer.OPTIONS | FEW), reserve=reserve),  # type: ignore[arg-type]
        )
        service = stack.enter_context(NfsService(export, options))
        (transport,) = service.rdma
        yield Lab(service.server, service.accelerator, transport, device, export / NAME.decode())


class Client(FileClient):
    """Leaves calls without waiting for their replies, each in a slot of its own."""

    slot = 0

    def sequence(self, *, is_again: bool = False) -> bytes:
        if not self.is_leaving:
            return super().sequence(is_again=is_again)
        self.slot += 1
        return calling.sequence(self.id, 1, self.slot)

    def leave(self, call: Callable[[], object]) -> int:
        """Returns the XID of what it sent."""
        self.is_leaving = True
        with pytest.raises(LeftError):
            call()
        self.is_leaving = False
        return self.xid


def remove(client: Client) -> calling.Result:
    """Python does that."""
    return client.do(PUTROOTFH, op(Op.REMOVE, lambda out: out.opaque(OTHER)))


def takes_all(greedy: Client, connection: RdmaConnection) -> list[int]:
    """The greedy client's calls: they have its buffer, and threads of both kinds."""

    def write() -> calling.Result:
        return greedy.write(0, b"data" * (BUFFER // 4), chunk=True)

    calls = [greedy.leave(write), greedy.leave(lambda: remove(greedy))]
    rdma_peer.wait_until(lambda: held() >= 2)
    calls.append(greedy.leave(write))
    rdma_peer.wait_until(lambda: connection.statistics()["waiting_pieces"])
    assert connection.memory.taken() == (connection.memory.buffers, 1)
    return calls


@pytest.mark.parametrize("reserve", [1, 0])
def test_control_traffic_beside_a_greedy_client(export: Path, reserve: int) -> None:
    with serving(export, reserve) as lab, Client(lab) as greedy:
        connection = rdma_peer.only_connection(lab.transport)
        greedy.enter(b"greedy")
        with Client(lab) as modest, Client(lab) as late:
            modest.enter(b"modest")
            modests = lab.transport.connections[1]
            with frozen(export):
                taken = takes_all(greedy, connection)
                if reserve:
                    late.session(b"a connection of its own")
                    greedy.session(b"the same connection")
                    assert modest.status(modest.sequence()) == Status.OK
                    assert modest.commit().status == Status.OK
                    waiting = []
                else:
                    before = modests.statistics()["slow_calls"]
                    waiting = [
                        modest.leave(lambda: modest.exchange(b"another")),
                        modest.leave(lambda: modest.send(modest.sequence())),
                    ]
                    rdma_peer.wait_until(
                        lambda: modests.statistics()["slow_calls"] == before + len(waiting)
                    )
                    waiting.append(modest.leave(modest.commit))
                    rdma_peer.wait_until(lambda: lab.accelerator.counters["queued"] == 1)
                    modest.peer.take()
                    assert not modest.peer.replies
                with Control(export.parent / "control") as control:
                    assert control.ask("sessions")
                greedy.peer.take()
                assert not greedy.peer.replies and held() >= 2
                rdma_peer.wait_until(lambda: modests.statistics()["in_progress"] == len(waiting))
            for xid in waiting:
                modest.peer.reply(xid)
            for xid in taken:
                greedy.peer.reply(xid)
