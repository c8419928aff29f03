# SPDX-License-Identifier: BSD-2-Clause
"""What a device must refuse, and how both sides hear of it.

A case says what the specification wants. Where the kernel does something else, the case says that,
too: as a peer it has to be taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from endpoints import ALL, Attributes, Rxe, Work
from scenarios import SIZE, Link

FLUSHED = "WR_FLUSH_ERR"
_WRONG = 0x5500  # turns a key into one that nobody has
#: Patient with an emulated guest; given up in a second where nobody answers.
PATIENCE = Attributes(timeout=16, retry_count=2, rnr_retry=2, min_rnr_timer=12)


@dataclass(frozen=True)
class Refusal:
    """The first request fails and the next one is flushed; so are the peer's Receives 100, 101."""

    name: str
    act: Callable[[Link], None]
    sent: str  #: what becomes of the first request
    received: Sequence[str] = (FLUSHED, FLUSHED)
    attributes: Attributes = PATIENCE
    region_access: Sequence[str] = ALL
    kernel_requests: dict[str, Any] = field(default_factory=dict)  #: if the requester is a kernel
    kernel_responds: dict[str, Any] = field(default_factory=dict)

    def expected(self, link: Link) -> dict[str, Any]:
        found = {"sent": self.sent, "received": self.received}
        if isinstance(link.b.endpoint, Rxe):
            found |= self.kernel_responds
        if isinstance(link.a.endpoint, Rxe):
            found |= self.kernel_requests
        return found

    def run(self, link: Link) -> None:
        self.act(link)
        expected = self.expected(link)
        sent = [(done.wr_id, done.status) for done in link.sent(2)]
        assert sent == [(1, expected["sent"]), (2, FLUSHED)]
        assert link.a.qp.state == "ERR"
        received = expected["received"]
        got = [(done.wr_id, done.status) for done in link.received(len(received))]
        assert got == [(100 + i, status) for i, status in enumerate(received)]
        assert link.b.qp.state == ("ERR" if received else "RTS")
        link.a.no_more()
        link.b.no_more()


def _two_receives(link: Link, length: int = 4096, wrong_key: int = 0) -> None:
    key, va, _ = link.b.at(0, length)
    link.b.qp.receive([(100, [(key ^ wrong_key, va, length)]), (101, [link.b.at(0, 4096)])])


def _request(link: Link, operation: str, length: int = 8, **more: Any) -> None:
    """The request in question, and one behind it."""
    first = {"operation": operation, "pieces": [link.a.at(0, length)], "swap_add": 1, **more}
    link.a.qp.send([Work(1, **first), Work(2, "SEND", [link.a.at(0, 8)])])


def _wrong_rkey(operation: str) -> Callable[[Link], None]:
    def act(link: Link) -> None:
        _two_receives(link)
        place = link.remote(0)
        place["rkey"] ^= _WRONG
        _request(link, operation, **place)

    return act


def _beyond_the_end(operation: str, length: int) -> Callable[[Link], None]:
    def act(link: Link) -> None:
        _two_receives(link)
        _request(link, operation, length, **link.remote(SIZE - length + 8))

    return act


def _plain(operation: str) -> Callable[[Link], None]:
    def act(link: Link) -> None:
        _two_receives(link)
        _request(link, operation, **link.remote(0))

    return act


def _short_receive(receive: int, length: int) -> Callable[[Link], None]:
    def act(link: Link) -> None:
        _two_receives(link, receive)
        _request(link, "SEND", length)

    return act


def _wrong_receive(link: Link) -> None:
    _two_receives(link, 100, _WRONG)
    _request(link, "SEND")


def _wrong_lkey(operation: str) -> Callable[[Link], None]:
    def act(link: Link) -> None:
        key, va, length = link.a.at(0, 100)
        _request(link, operation, pieces=[(key ^ _WRONG, va, length)], **link.remote(0))

    return act


def _no_receive(link: Link) -> None:
    _request(link, "SEND")


def _peer_in_error(link: Link) -> None:
    _two_receives(link)
    link.b.qp.fail()
    _request(link, "SEND")


def _access(*rights: str) -> Attributes:
    return Attributes(timeout=16, retry_count=2, access=rights)


_EVERY_ONE_SIDED = ("WRITE", "WRITE_WITH_IMM", "READ", "FETCH_ADD", "COMPARE_SWAP")
# The kernel takes the Receive before it looks at the key.
_TOOK_THE_RECEIVE = {"WRITE_WITH_IMM": {"received": ("REM_ACCESS_ERR", FLUSHED)}}
# The kernel finds out while it copies, and calls all of that a malformed Receive.
_MALFORMED = {"sent": "REM_OP_ERR", "received": ("LOC_QP_OP_ERR", FLUSHED)}

REFUSALS = [
    *(
        Refusal(
            f"wrong rkey, {operation}",
            _wrong_rkey(operation),
            "REM_ACCESS_ERR",
            kernel_responds=_TOOK_THE_RECEIVE.get(operation, {}),
        )
        for operation in _EVERY_ONE_SIDED
    ),
    *(
        Refusal(
            f"{operation} of {length} beyond the end",
            _beyond_the_end(operation, length),
            "REM_ACCESS_ERR",
        )
        for operation in ("WRITE", "READ")
        for length in (64, 5000)
    ),
    *(
        Refusal(
            f"{operation} without the region's right",
            _plain(operation),
            "REM_ACCESS_ERR",
            region_access=("local_write",),
        )
        for operation in ("WRITE", "READ", "FETCH_ADD")
    ),
    *(
        Refusal(
            f"{operation} without the queue pair's right",
            _plain(operation),
            "REM_INV_REQ_ERR",
            attributes=_access(),
        )
        for operation in ("WRITE", "READ", "FETCH_ADD")
    ),
    *(
        Refusal(
            f"{length} bytes for a Receive of {receive}",
            _short_receive(receive, length),
            "REM_INV_REQ_ERR",
            ("LOC_LEN_ERR", FLUSHED),
            kernel_responds=_MALFORMED,
        )
        for receive, length in ((100, 101), (1500, 3000))
    ),
    Refusal(
        "a Receive with a wrong lkey",
        _wrong_receive,
        "REM_OP_ERR",
        ("LOC_PROT_ERR", FLUSHED),
        kernel_responds=_MALFORMED,
    ),
    Refusal("no Receive", _no_receive, "RNR_RETRY_EXC_ERR", ()),
    *(
        Refusal(
            f"{operation} with a wrong lkey",
            _wrong_lkey(operation),
            "LOC_PROT_ERR",
            (),
            # The kernel's own state change overtakes the request's status.
            kernel_requests={} if operation == "READ" else {"sent": FLUSHED},
        )
        for operation in ("SEND", "WRITE", "READ")
    ),
    Refusal("the peer in ERR", _peer_in_error, "RETRY_EXC_ERR"),
]
