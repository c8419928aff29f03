# SPDX-License-Identifier: BSD-2-Clause
"""The side that is our device, in the words of a scenario."""

from __future__ import annotations

import contextlib
import ipaddress
import mmap
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from endpoints import ALL, Attributes, Done, Memory, Piece, QueuePair, Work, digest_of, pattern

from livedma.lab.hosts import Host
from livedma.rdma import (
    CompletionQueue,
    Device,
    MemoryRegion,
    OnDemandRegion,
    PortKind,
    ProtectionDomain,
    WorkRequest,
    cm,
)

_REMOTE = ("remote_write", "remote_read", "remote_atomic")


def _remote_rights(access: Sequence[str]) -> list[str]:
    return [right for right in access if right in _REMOTE]


class OurMemory:
    def __init__(self, pd: ProtectionDomain, length: int, access: Sequence[str]) -> None:
        self.buffer = bytearray(length)
        self.pd = pd
        self.region = pd.register(self.buffer, *_remote_rights(access))
        self.key, self.va = self.region.rkey, self.region.va
        self.parts: list[MemoryRegion] = []

    def at(self, offset: int, length: int) -> Piece:
        return self.region[offset : offset + length]

    def fill(self, offset: int, length: int, seed: int) -> None:
        self.buffer[offset : offset + length] = pattern(length, seed)

    def write(self, offset: int, data: bytes) -> None:
        self.buffer[offset : offset + len(data)] = data

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.buffer[offset : offset + length])

    def digest(self, offset: int, length: int) -> str:
        return digest_of(self.read(offset, length))

    def close(self) -> None:
        for region in (*self.parts, self.region):
            region.close()


class OnDemandMemory(OurMemory):
    """No page of it is there before somebody needs it."""

    def __init__(self, pd: ProtectionDomain, length: int, access: Sequence[str]) -> None:
        self.map = mmap.mmap(-1, length)
        self.buffer = memoryview(self.map)  # type: ignore[assignment]
        self.pd = pd
        self.region = pd.register(self.map, *_remote_rights(access), mode="on demand")  # type: ignore[assignment]
        self.key, self.va = self.region.rkey, self.region.va
        self.parts: list[MemoryRegion] = []

    def forget(self, offset: int, length: int) -> None:
        """The device has to ask for its pages again."""
        assert isinstance(self.region, OnDemandRegion)
        self.region.invalidate_range(offset, length)


class OurQueuePair:
    def __init__(self, pd: ProtectionDomain, kind: str, depth: int, inline: int) -> None:
        device = pd.device
        self._cqs: dict[str, CompletionQueue] = {
            queue: device.completion_queue(2 * depth) for queue in ("send", "recv")
        }
        init = {"max_send": depth, "max_recv": depth, "max_inline": inline}
        self._qp = pd.queue_pair(kind, self._cqs["send"], self._cqs["recv"], **init)
        self.number = self._qp.number

    def connect(
        self, src: str, dst: str, dest_qp: int, psns: tuple[int, int], attributes: Attributes
    ) -> None:
        assert src == self._qp.pd.device.address
        patience = {
            "timeout": attributes.timeout,
            "retry_count": attributes.retry_count,
            "rnr_retry": attributes.rnr_retry,
            "min_rnr_timer": attributes.min_rnr_timer,
            "max_rd_atomic": attributes.rd_atomic,
            "max_dest_rd_atomic": attributes.rd_atomic,
        }
        route = {"mtu": attributes.mtu, "dst": dst, "dest_qp": dest_qp, "rq_psn": psns[1]}
        self._qp.modify("INIT", access=_remote_rights(attributes.access))
        self._qp.modify("RTR", **route, **patience)
        self._qp.modify("RTS", sq_psn=psns[0], **patience)

    def activate(self, src: str, qkey: int, psn: int) -> None:
        assert src == self._qp.pd.device.address
        self._qp.modify("INIT", qkey=qkey)
        self._qp.modify("RTR", mtu=self._qp.pd.device.path_mtu, dst=src)
        self._qp.modify("RTS", sq_psn=psn)

    def receive(self, requests: Iterable[tuple[int, Sequence[Piece]]]) -> None:
        self._qp.post_recvs(requests)

    def send(self, requests: Iterable[Work]) -> None:
        self._qp.post_sends([_request(work) for work in requests])

    def completions(self, queue: str, count: int, timeout_s: float = 20.0) -> list[Done]:
        found: list[Done] = []
        end_s = time.monotonic() + timeout_s
        while len(found) < count:
            left_s = max(0.0, end_s - time.monotonic())
            for one in self._cqs[queue].wait(left_s, count - len(found)):
                about = (one.wr_id, one.status, one.operation, one.length, one.src_qp)
                found.append(Done(*about, one.imm, one.invalidated))
            if time.monotonic() >= end_s:
                break
        return found

    def fail(self) -> None:
        self._qp.modify("ERR")

    @property
    def state(self) -> str:
        return self._qp.state

    def close(self) -> None:
        self._qp.close()
        for cq in self._cqs.values():
            cq.close()


def _request(work: Work) -> WorkRequest:
    more: dict[str, Any] = {}
    if work.to is not None:
        more = {"dst": work.to.dst, "remote_qp": work.to.remote_qp, "remote_qkey": work.to.qkey}
    return WorkRequest(
        work.wr_id,
        work.operation,
        work.pieces,
        flags=work.flags,
        imm=work.rkey if work.operation == "SEND_WITH_INV" else work.imm,
        remote_va=work.remote_va,
        rkey=work.rkey,
        compare=work.compare,
        swap_add=work.swap_add,
        **more,
    )


# An emulated guest that has to share its processor says nothing for a second now and then. What was
# sent is repeated after four, by both: the peer is told so.
_PATIENT = cm.Timing(ack_delay=20)


class Ours:
    """Our device at one address; unlike a kernel's, it has one only."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._pd = device.protection_domain()

    def address(self, version: int) -> str:
        assert ipaddress.ip_address(self.device.address).version == version
        return self.device.address

    def memory(self, length: int, access: Sequence[str] = ALL) -> OurMemory:
        return OurMemory(self._pd, length, access)

    def queue_pair(self, kind: str, *, depth: int = 64, inline: int = 0) -> OurQueuePair:
        return OurQueuePair(self._pd, kind, depth, inline)

    def invalidatable(self, qp: QueuePair, memory: Memory, offset: int, length: int) -> int:
        assert isinstance(memory, OurMemory)
        part = memoryview(memory.buffer)[offset : offset + length]
        region = memory.pd.register(part, *_REMOTE, "remote_invalidate")
        assert region.va == memory.va + offset
        memory.parts.append(region)
        return region.rkey


class OursOnDemand(Ours):
    def memory(self, length: int, access: Sequence[str] = ALL) -> OnDemandMemory:
        return OnDemandMemory(self._pd, length, access)


@contextlib.contextmanager
def our_device(host: Host, address: str, port: PortKind = "auto") -> Iterator[Ours]:
    with host.inside():
        device = Device(address, port=port)
    with device:
        cm.manager(device, timing=_PATIENT)
        yield Ours(device)
