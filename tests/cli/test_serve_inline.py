# SPDX-License-Identifier: BSD-2-Clause
"""--inline of `livedma serve` changes the threshold that it announces, and what it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.control.live import CLIENT, PORT, SERVER, serve
from tests.rpc.rdma_peer import Peer

from livedma.nfs.numbers import PROGRAM, VERSION
from livedma.rdma import Device
from livedma.rpc.message import Call, encode_call
from livedma.rpc.rdma_private import PrivateData

pytestmark = pytest.mark.slow

#: A call of NULL that is longer than 4 KiB; a peer that sees 4 KiB announced must not send it.
LONG = encode_call(Call(0, PROGRAM, VERSION, 0))[4:] + bytes(6000)


@pytest.mark.parametrize(("option", "announced"), [(None, 4096), ("8KiB", 8192), ("64KiB", 65536)])
def test_what_is_announced_is_taken(tmp_path: Path, option: str | None, announced: int) -> None:
    options = () if option is None else ("--inline", option, "--window", "64MiB")
    with (
        serve(tmp_path, *options),
        Device(CLIENT) as device,
        Peer(device, SERVER, port=PORT, inline=8192) as peer,
    ):
        said = PrivateData.decode(peer.connection.private_data)
        assert said is not None
        assert (said.send_bytes, said.receive_bytes) == (announced, announced)
        xid = peer.call(LONG)
        if announced > len(LONG):
            peer.reply(xid)
        else:  # its Receive is too short: the connection ends
            peer.await_end()


@pytest.mark.parametrize("text", ["2KiB", "128KiB", "5000", "much"])
def test_what_no_connection_can_announce_is_refused(tmp_path: Path, text: str) -> None:
    command = (sys.executable, "-m", "livedma.cli", "serve", str(tmp_path), "--inline", text)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--inline" in done.stderr, done
