# SPDX-License-Identifier: BSD-2-Clause
"""Carries messages between both sides of a measurement: JSON over a connection of its own."""

from __future__ import annotations

import json
from typing import Any

from livedma.errors import LivedmaError
from livedma.rdma import Completion, Device, QueuePair, cm

__all__ = ["Control", "PeerError", "why"]

_MESSAGE_BYTES = 1024
_SLOTS = 4
_KEEPALIVE_S = 5.0
_CHECK = 1 << 32  # the number of the requests that only check that the peer is there


class PeerError(LivedmaError):
    """Reports that the other side ended the run, or is no perf of this version."""


class Control:
    """Runs one end. `setup` goes to cm.connect or accept; the caller then sets `connection`."""

    def __init__(self, device: Device) -> None:
        pd = device.protection_domain()
        self._cq = device.completion_queue(64)
        self._memory = bytearray(_SLOTS * _MESSAGE_BYTES)
        self._region = pd.register(self._memory)
        self._arrived: list[bytes] = []
        self.connection: cm.Connection | None = None
        self.setup: cm.Setup = {
            "pd": pd,
            "cq": self._cq,
            "max_recv": _SLOTS,
            "max_inline": _MESSAGE_BYTES,
            "prepare": self._prepare,
        }

    def send(self, says: str, **fields: Any) -> None:
        data = json.dumps({"says": says, **fields}).encode()
        self._live().qp.post_send(0, "SEND", inline=data)

    def receive(self, says: str, spin: float = 0.0) -> dict[str, Any]:
        """Returns the next message, which has to say this.

        Serves the device for spin seconds, then sleeps; now and then it checks that the peer lives.
        """
        while not self._arrived:
            completions = self._cq.wait(_KEEPALIVE_S, spin=spin)
            if not completions:
                self._live().qp.post_send(_CHECK, "WRITE")
            for completion in completions:
                if self._arrived and completion.status != "SUCCESS":
                    break  # its last message says more
                self._take(completion)
        message = _parse(self._arrived.pop(0))
        if message.get("says") == "failed":
            raise PeerError(f"{self._live().peer} says: {_printable(message.get('why'))}")
        if message.get("says") != says:
            raise PeerError(f"{self._live().peer} is no livedma perf of this version")
        return message

    def _live(self) -> cm.Connection:
        assert self.connection is not None
        return self.connection

    def _prepare(self, qp: QueuePair) -> None:
        for slot in range(_SLOTS):
            self._post(qp, slot)

    def _post(self, qp: QueuePair, slot: int) -> None:
        start = slot * _MESSAGE_BYTES
        qp.post_recv(slot, [self._region[start : start + _MESSAGE_BYTES]])

    def _take(self, completion: Completion) -> None:
        if completion.status != "SUCCESS":
            raise PeerError(f"{self._live().peer} {why(completion.status)}")
        if completion.operation != "RECV":
            return
        start = completion.wr_id * _MESSAGE_BYTES
        self._arrived.append(bytes(self._memory[start : start + completion.length]))
        self._post(self._live().qp, completion.wr_id)


def why(status: str) -> str:
    """Returns what the peer has done if a request completes with this status."""
    words = {"WR_FLUSH_ERR": "ended the run", "RETRY_EXC_ERR": "does not answer any more"}
    return f"{words.get(status, 'does not answer as it should')} ({status})"


def _parse(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _printable(text: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text)[:200])
