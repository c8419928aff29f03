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


async def work(kind: str, transport: Any) -> dict[str, object]:
    """Each makes a file and reads it back; what is one's alone is refused to the other."""
    found: dict[str, object] = {}

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
    async with await connect(OTHER) as client:
        try:
            await client.open(f"/{kind}-{ONE.uid}")
        except NfsError as error:
            found["refused"] = error.status.name
    return found


def main(kind: str) -> None:
    if kind == "tcp":
        found = asyncio.run(work(kind, "tcp"))
    else:
        with Device(CLIENT) as device:  # the server has its address for itself
            found = asyncio.run(work(kind, partial(rdma_client.connect, device=device)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
