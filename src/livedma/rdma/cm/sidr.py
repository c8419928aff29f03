# SPDX-License-Identifier: BSD-2-Clause
"""Resolves service IDs: which queue pair serves a UDP port (IBA 12.11)."""

from __future__ import annotations

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import (
    ConnectionStateError,
    Listener,
    Retry,
    SidrRequest,
    TableFullError,
)
from livedma.rdma.cm.messages import Message
from livedma.rdma.cm.outbox import Outbox
from livedma.rdma.cm.timers import Timers


class Resolution:
    """Holds our requests and those of peers. An answer is kept while the peer may ask again."""

    def __init__(self, outbox: Outbox, listeners: dict[tuple[str, int], Listener]) -> None:
        self._outbox = outbox
        self._listeners = listeners
        self._ours: dict[int, SidrRequest] = {}
        self._theirs: dict[tuple[str, int], SidrRequest] = {}
        self.timers: Timers[SidrRequest] = Timers()

    def __len__(self) -> int:
        return len(self._ours) + len(self._theirs)

    def resolve(
        self, peer: str, port: int, now: float, *, source_port: int, private_data: bytes
    ) -> SidrRequest:
        outbox = self._outbox
        if len(self._ours) >= outbox.limits.sidr_requests:
            raise TableFullError(f"{len(self._ours)} requests are open, which is the limit")
        request = SidrRequest(peer, port, outbox.new_id(self._ours), is_ours=True)
        mad = messages.sidr_req(
            transaction_id=outbox.random.getrandbits(64),
            request_id=request.request_id,
            address=outbox.address,
            peer=peer,
            port=port,
            source_port=source_port,
            data=private_data,
        )
        request.retry = Retry(mad, outbox.timing.request_seconds, outbox.timing.max_retries)
        self._ours[request.request_id] = request
        self.timers.set(request, now + request.retry.seconds)
        outbox.send(mad, peer)
        return request

    def cancel(self, request: SidrRequest) -> None:
        """Stops asking; nothing more is reported."""
        if self._ours.get(request.request_id) is request:
            del self._ours[request.request_id]
            self.timers.set(request, None)

    def answer(
        self,
        request: SidrRequest,
        now: float,
        status: str,
        *,
        qpn: int = 0,
        qkey: int = 0,
        private_data: bytes = b"",
    ) -> None:
        if request.is_ours or request.answer is not None:
            raise ConnectionStateError("this request is not waiting for an answer")
        mad = messages.sidr_rep_to(request.message, status, qpn=qpn, qkey=qkey, data=private_data)
        request.answer = mad
        if request.listener:
            request.listener.waiting -= 1
        timing = self._outbox.timing
        self.timers.set(request, now + timing.request_seconds * (timing.max_retries + 1))
        self._outbox.send(mad, request.peer)

    def reject_all(self, listener: Listener, now: float) -> None:
        for request in list(self._theirs.values()):
            if request.listener is listener and request.answer is None:
                self.answer(request, now, messages.SIDR_UNSUPPORTED)

    def received_req(self, message: Message, source: str, now: float) -> None:
        outbox = self._outbox
        known = self._theirs.get((source, message["request_id"]))
        if known is not None:
            outbox.counters.duplicate += 1
            if known.answer is not None:
                outbox.send(known.answer, source)
            return
        listener = self._listeners.get((message.get("port_space", ""), message.get("port", 0)))
        if listener is None or listener.space != "UDP":
            outbox.counters.refused += 1
            outbox.send(messages.sidr_rep_to(message, messages.SIDR_UNSUPPORTED), source)
            return
        if listener.waiting >= listener.backlog:
            outbox.counters.backlog_full += 1
            return
        if len(self._theirs) >= outbox.limits.sidr_requests and not self._forget_one():
            outbox.counters.table_full += 1
            return
        request = SidrRequest(
            source,
            message["port"],
            message["request_id"],
            is_ours=False,
            peer_port=message["ip_cm"]["src_port"],
            listener=listener,
            message=message,
        )
        self._theirs[source, request.request_id] = request
        listener.waiting += 1
        outbox.emit(events.SidrRequested(request, listener, messages.private_data(message)))

    def received_rep(self, message: Message, source: str, now: float) -> None:
        request = self._ours.get(message["request_id"])
        if request is None:
            self._outbox.counters.unmatched += 1
            return
        if request.peer != source:
            self._outbox.counters.misdirected += 1
            return
        self.cancel(request)
        self._outbox.emit(
            events.SidrResolved(
                request,
                message["status"],
                message["qpn"],
                message["qkey"],
                messages.private_data(message),
            )
        )

    def expire(self, now: float) -> None:
        while request := self.timers.expired(now):
            retry = request.retry
            if retry is None:
                del self._theirs[request.peer, request.request_id]
            elif retry.left:
                retry.left -= 1
                self._outbox.counters.repeated += 1
                self._outbox.send(retry.mad, request.peer)
                self.timers.set(request, now + retry.seconds)
            else:
                del self._ours[request.request_id]
                self._outbox.emit(events.SidrUnreachable(request))

    def _forget_one(self) -> bool:
        """Forgets the oldest answered request to make room; False if all still wait for answers."""
        for key, request in self._theirs.items():
            if request.answer is not None:
                self._outbox.counters.forgotten += 1
                self.timers.set(request, None)
                del self._theirs[key]
                return True
        return False
