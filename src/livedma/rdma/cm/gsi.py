# SPDX-License-Identifier: BSD-2-Clause
"""Sends and receives MADs by queue pair 1 of a device, for the connection manager."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from livedma.rdma.device import Device
from livedma.wire.cm import MAD_BYTES

GSI_QP = 1
GSI_QKEY = 0x80010000
_GRH_BYTES = 40
_SLOT_BYTES = _GRH_BYTES + MAD_BYTES
_DEPTH = 256
_SEND = 1 << 32  # wr_id of each SEND; that of a Receive is the number of its slot


class Gsi:
    """Sends and receives MADs. One thread at a time sends; another may receive meanwhile."""

    def __init__(self, device: Device) -> None:
        self._is_ipv4 = ipaddress.ip_address(device.address).version == 4
        self._memory = bytearray(_DEPTH * _SLOT_BYTES)
        pd = device.protection_domain()
        # SENDs complete here, too: they wake the thread that waits, which sets its timer anew.
        self._cq = device.completion_queue(4 * _DEPTH)
        self._region = pd.register(self._memory)
        self._qp = pd.queue_pair(
            "GSI", self._cq, max_send=_DEPTH, max_recv=_DEPTH, max_inline=MAD_BYTES
        )
        self._qp.modify("INIT")
        self._post(range(_DEPTH))
        self._qp.modify("RTR", dst=device.address)
        self._qp.modify("RTS")
        self._signaled = 0
        self._collected = 0
        self.unsent = 0  # MADs that found the queue full: either side repeats its message later

    def send(self, mad: bytes, destination: str) -> None:
        has_room = self._signaled - self._collected < _DEPTH
        try:
            self._qp.post_send(
                _SEND,
                "SEND",
                flags=("signaled",) if has_room else (),
                inline=mad,
                dst=destination,
                remote_qp=GSI_QP,
                remote_qkey=GSI_QKEY,
            )
        except OSError:
            self.unsent += 1
        else:
            self._signaled += has_room

    def receive(self, timeout: float) -> list[tuple[bytes, str]]:
        """Returns MADs, each with its sender's address.

        Returns none after timeout seconds or when a SEND completed. Raises ValueError when the
        device is closed.
        """
        done = self._cq.wait(timeout, count=_DEPTH, spin=0)
        arrived = [completion for completion in done if completion.wr_id != _SEND]
        self._collected += len(done) - len(arrived)
        mads = [
            (self._mad(completion.wr_id), self._source(completion.wr_id))
            for completion in arrived
            if completion.status == "SUCCESS" and completion.length == _SLOT_BYTES
        ]
        self._post(completion.wr_id for completion in arrived)
        return mads

    def _post(self, slots: Iterable[int]) -> None:
        at = ((slot, slot * _SLOT_BYTES) for slot in slots)
        self._qp.post_recvs(
            (slot, [self._region[start : start + _SLOT_BYTES]]) for slot, start in at
        )

    def _mad(self, slot: int) -> bytes:
        end = (slot + 1) * _SLOT_BYTES
        return bytes(self._memory[end - MAD_BYTES : end])

    def _source(self, slot: int) -> str:
        """Reads it from the header before the MAD: an IPv4 header is the last 20 of 40 bytes."""
        start = slot * _SLOT_BYTES
        where = (start + 32, start + 36) if self._is_ipv4 else (start + 8, start + 24)
        return str(ipaddress.ip_address(bytes(self._memory[slice(*where)])))
