# SPDX-License-Identifier: BSD-2-Clause
"""Our client of RPC-over-RDMA and our server, over a real device each."""

from __future__ import annotations

import asyncio
import random

import pytest
from rdma_peer import PORT, Echo, data_reply, only_connection, serving, wait_until

from livedma.rpc import rdma_client
from livedma.rpc.client import ConnectionLost
from livedma.rpc.message import Call, OpaqueAuth, decode_reply, encode_call
from livedma.rpc.xdr import Decoder

pytestmark = pytest.mark.slow

CALL = encode_call(Call(0, 100003, 4, 1, OpaqueAuth(0), OpaqueAuth(0)), b"argument")
ACCEPTED = bytes.fromhex("00000001 00000000 00000000 00000000 00000000")


def test_calls_of_every_shape() -> None:
    """Many at once, with less credits than that: short and long, with data either way."""
    echo = Echo()
    data = random.Random(3).randbytes(150_001)

    async def talk() -> None:
        link = await rdma_client.connect(server.device.address, PORT, device=device, calls=16)
        echo.answer = [ACCEPTED, b"ping"]
        answers = await asyncio.gather(*(link.call(CALL) for _ in range(40)))
        for answer in answers:
            decoder = Decoder(answer.message)
            decode_reply(decoder)
            assert decoder.data[decoder.pos :] == b"ping"
        echo.answer = [ACCEPTED, bytes(20_000)]
        assert len((await link.call(CALL, reply_room=30_000)).message) == 24 + 20_000
        echo.messages.clear()
        echo.answer = [ACCEPTED]
        await link.call(CALL, send_data=data, position=44)
        assert echo.messages[0][44:] == data + bytes(3) + CALL[44:]
        echo.answer = [ACCEPTED, *data_reply(data)]
        room = bytearray(160_000)
        await link.call(CALL, receive_into=room)
        assert room[: len(data)] == data
        only_connection(server).close()
        with pytest.raises(ConnectionLost):
            await link.call(CALL)  # it cannot be answered any more
        link.close()

    with serving(echo, credits=4, mapped_bytes=0) as (server, device):
        asyncio.run(asyncio.wait_for(talk(), 60))
        wait_until(lambda: not server.connections)
        assert len(echo.ended) == 1
