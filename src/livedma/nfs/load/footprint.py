# SPDX-License-Identifier: BSD-2-Clause
"""Computes what a run needs: memory of this host, and room for files at the server."""

from __future__ import annotations

from livedma._native.caller import memory_bytes
from livedma._native.load import buffer_bytes, session_bytes
from livedma.memory.headroom import headroom
from livedma.nfs.client import Client, OperationFailed
from livedma.nfs.load.plan import Plan
from livedma.nfs.load.sessions import ADVICE, LoadError
from livedma.rpc.names import TransportKind
from livedma.rpc.rdma_client import INLINE_BYTES
from livedma.wire.words import amount

__all__ = ["check_memory", "check_room", "file_bytes", "host_bytes", "size_text"]

_RESULT_BYTES = 56 << 10  # of a session: its file here, and its figures at the end
_STREAM_LEAST = 512 << 10  # of a connection over TCP


def host_bytes(plan: Plan) -> int:
    """Returns roughly how much memory the run takes here."""
    blocks = plan.file_bytes // plan.size
    each = session_bytes(plan.depth, blocks) + _RESULT_BYTES
    if plan.proto == TransportKind.RDMA:
        messages = memory_bytes(plan.calls, INLINE_BYTES, INLINE_BYTES)
        connection = messages + plan.calls * buffer_bytes(plan.size)
    else:
        connection = max(5 * plan.size, _STREAM_LEAST)
    return plan.sessions * each + plan.connections * connection


def file_bytes(plan: Plan) -> int:
    """Returns how much all files take at the server."""
    return plan.sessions * plan.file_bytes


def check_memory(plan: Plan) -> None:
    """Raises LoadError if this host has too little memory."""
    needed, room = host_bytes(plan), headroom()
    if needed > room.free:
        raise LoadError(
            f"{amount(plan.sessions, 'session')} would take {size_text(needed)} of memory here, "
            f"and {size_text(room.free)} are free of {room.limit}: use fewer --sessions or "
            "--connections, or a smaller --size"
        )


async def check_room(plan: Plan, client: Client) -> None:
    """Raises LoadError if the server does not take operations of that size, or has no room for the
    files.
    """
    most = min(client.through.read_bytes, client.through.write_bytes)
    if most < plan.size:
        raise LoadError(
            f"the server takes {most:,} bytes a call at most, and --size is {plan.size:,}: use "
            f"--size {most // 8 * 8} or less"
        )
    try:
        if not (await client.stat(plan.directory)).is_dir:
            raise LoadError(f"--dir {plan.directory} is no directory")
        room = await client.statfs(plan.directory)
    except OperationFailed as error:
        raise LoadError(f"{error}{ADVICE.get(error.status, '')}") from None
    needed = file_bytes(plan)
    if room.total_bytes and needed > room.available_bytes:
        raise LoadError(
            f"the files of {amount(plan.sessions, 'session')} would take {size_text(needed)}, and "
            f"{plan.directory} of the server has {size_text(room.available_bytes)} left: use fewer "
            "--sessions or a smaller --file-size"
        )


def size_text(count: int) -> str:
    """Returns bytes in words for people: 1.5 GB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e6:.1f} MB"
