# SPDX-License-Identifier: BSD-2-Clause
"""The server as users have it: `livedma serve`, over TCP, ended and started again."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from calling import ROOT, compound, create_session, exchange_id, sequence
from tests.rpc.records import encode_record

from livedma.nfs.numbers import PROGRAM, VERSION, Status
from livedma.rpc.message import Accepted, Call, decode_reply, encode_call
from livedma.rpc.xdr import Decoder

pytestmark = pytest.mark.slow

PATIENCE_S = 30


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "livedma.cli", "serve", *map(str, args)]


@contextmanager
def served(tmp_path: Path, *options: object) -> Iterator[int]:
    """Its port."""
    export = tmp_path / "export"
    export.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    where = ("--listen", "127.0.0.1", "--tcp", port, "--rdma", "off")
    args = (export, "--state", tmp_path / "state", "--control", tmp_path / "control", *where)
    args += ("--log-level", "warning")  # a user other than root is told what that costs
    process = subprocess.Popen(command(*args, *options), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(3)]
        assert f"TCP port {port}" in said[1] and "control" in said[2]
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def call(peer: socket.socket, *ops: bytes) -> tuple[Status, Decoder]:
    message = encode_call(Call(7, PROGRAM, VERSION, 1, ROOT), compound(*ops))
    peer.sendall(encode_record(message))
    data = b""
    while len(data) < 4 or len(data) < 4 + (struct.unpack(">I", data[:4])[0] & 0x7FFFFFFF):
        part = peer.recv(1 << 16)
        assert part
        data += part
    decoder = Decoder(data[4:])
    assert decode_reply(decoder) == Accepted(7)
    status = Status(decoder.u32())
    decoder.opaque()
    decoder.skip(12)
    return status, decoder


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def test_a_session_and_a_restart(tmp_path: Path) -> None:
    with served(tmp_path) as port, connect(port) as peer:
        status, result = call(peer, exchange_id())
        assert status == Status.OK
        number = result.u64()
        status, result = call(peer, create_session(number))
        assert status == Status.OK
        session = result.fixed(16)
        assert call(peer, sequence(session))[0] == Status.OK
    with served(tmp_path) as port, connect(port) as peer:
        assert call(peer, sequence(session, 2))[0] == Status.BADSESSION
        assert call(peer, create_session(number, 2))[0] == Status.STALE_CLIENTID


def test_who_may_connect(tmp_path: Path) -> None:
    options = ("--allow", "10.0.0.0/8", "--allow", "fd00::/8")
    with served(tmp_path, *options) as port, connect(port) as peer:
        assert peer.recv(1) == b""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing"], "no directory"),
        (["export", "--state", "export/state"], "it is secret"),
        (["export", "--allow", "10.0.0.0/33"], "no network"),
        (["export", "--anonymous", "65534"], "no ids"),
        (["export", "--lease", "60", "--grace", "30"], "--grace 30 is shorter than --lease 60"),
        (["export", "--slots", "1025"], "1 to 1024"),
    ],
)
def test_wrong_use(tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "export").mkdir()
    done = subprocess.run(
        command(*args), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode in (1, 2) and said in done.stderr
