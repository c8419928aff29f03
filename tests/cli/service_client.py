# SPDX-License-Identifier: BSD-2-Clause
"""A client of a server, as several users: prints what it found, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from typing import Any

from livedma.nfs.client import Client
from livedma.nfs.numbers import NfsError
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.message import AuthSys

SERVER, CLIENT = "127.0.0.1", "127.0.0.2"
PORTS = {"tcp": 2049, "rdma": 20049}
ONE = AuthSys(0, b"test", 1001, 2001, (2005,))
OTHER = AuthSys(0, b"test", 1002, 2002, ())
ROOT = AuthSys(0, b"test", 0, 0, ())


async def work(kind: str, server_uid: int, transport: Any) -> dict[str, Any]:
    """Each makes a file and reads it back; what is one's alone is refused to others, also to a user
    that has the server's ids. The owner tells what root makes.
    """
    found: dict[str, Any] = {}

    async def connect(who: AuthSys) -> Client:
        return await Client.connect(SERVER, PORTS[kind], transport=transport, credential=who)

    for who in (ONE, OTHER):
        name = f"/{kind}-{who.uid}"
        async with await connect(who) as client:
            async with await client.open(name, "rw", create=True, mode=0o600) as file:
                await file.write(0, name.encode())
                await file.commit()
            async with await client.open(name) as file:
                found[name] = (await file.read(0, 100)).decode()
    async with await connect(ROOT) as client:
        await (await client.open(f"/{kind}-root", "rw", create=True)).close()
    server = AuthSys(0, b"test", server_uid, server_uid, ())
    refused = found["refused"] = {}
    for who in (OTHER, server):
        async with await connect(who) as client:
            for path in (f"/{kind}-{ONE.uid}", "/below/x"):
                try:
                    await client.open(path)
                except NfsError as error:
                    refused[f"{who.uid} {path}"] = error.status.name
    return found


async def hold() -> str:
    """Keeps a file open while the server goes and comes back; what is in it then."""
    async with (
        await Client.connect(SERVER, transport="tcp", credential=ONE) as client,
        await client.open("/held", "rw", create=True, mode=0o600) as file,
    ):
        await file.write(0, b"before")
        await file.commit()
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await file.write(6, b" and after")
        await file.commit()
        return (await file.read(0, 100)).decode()


def main(kind: str, server_uid: int) -> None:
    if kind == "tcp":
        found = asyncio.run(work(kind, server_uid, "tcp"))
    else:
        with Device(CLIENT) as device:  # the server has its address for itself
            connect = partial(rdma_client.connect, device=device)
            found = asyncio.run(work(kind, server_uid, connect))
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        print(asyncio.run(hold()))
    else:
        main(sys.argv[1], int(sys.argv[2]))
