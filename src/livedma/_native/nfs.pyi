# SPDX-License-Identifier: BSD-2-Clause
from typing import final

SLOTS_MAX: int
SMALL_REPLY: int
TIMES_BOUNDS_NS: tuple[int, ...]

def fast_operation(message: bytes, read_position: int = 0, read_length: int = 0) -> int:
    """Returns the operation that a call with this message and read chunk asks for, if it has the
    shape of the calls that need no Python; else 0.
    """

@final
class SlotTable:
    """Holds the slots of a session, and the replies of their last requests.

    It keeps every reply of up to SMALL_REPLY bytes, and one of up to `cache_bytes` if the client
    asks for that. Any thread may use it.
    """

    def __init__(self, session_id: bytes, client: int, slots: int, cache_bytes: int) -> None: ...
    @property
    def session_id(self) -> bytes:
        """Is the session's id."""
    @property
    def client(self) -> int:
        """Is the id of the session's client."""
    @property
    def cache_bytes(self) -> int:
        """Is the size of the longest reply that it keeps where the client asks for it."""
    def begin(
        self, slot: int, sequence: int, highest: int, cache_this: bool, fingerprint: int = 0
    ) -> int | bytes:
        """Takes a SEQUENCE. Returns 0 if the caller is to execute the request, and then to call end
        or cancel; the kept reply if it was executed before; or the status that answers it.

        fingerprint: tells requests with the same sequence apart, if both have one.
        """
    def end(
        self,
        slot: int,
        reply: bytes | None,
        read_bytes: int = 0,
        written_bytes: int = 0,
        storage_ns: int = 0,
    ) -> bool:
        """Ends a request that was executed, moved so many bytes, and was in the store for so long.
        Returns whether its reply is kept; None never is.
        """
    def cancel(self, slot: int) -> None:
        """Ends a request that was not executed: the slot is again as it was before."""
    target: int
    status_flags: int
    request_max: int
    response_max: int
    def bind(self, connection: int) -> None:
        """Lets requests on the connection of this number be served without Python."""
    def unbind(self, connection: int) -> None:
        """Lets no further request on the connection be served without Python."""
    def is_bound(self, connection: int) -> bool:
        """Returns whether requests on the connection may be served without Python."""
    @property
    def size(self) -> int:
        """Counts the slots."""
    @property
    def highest(self) -> int:
        """Is the highest slot id, for SEQUENCE's result."""
    @property
    def target_highest(self) -> int:
        """Is the highest slot id that is wanted, for SEQUENCE's result."""
    @property
    def used_ns(self) -> int:
        """Is the time at which the last request began, by the monotonic clock; 0: none did."""
    @property
    def counters(self) -> dict[str, int]:
        """Counts the session's requests by what became of them (native/nfs/slots.h)."""
    def totals(self) -> tuple[tuple[int, ...], int]:
        """Returns two values. The first, since the session was made: (operations, bytes read, bytes
        written, ns waited for buffers, ns in the store, and of latency how many took less than each
        of TIMES_BOUNDS_NS, how many there were, ns together). The second: how many are executing.
        """
    @property
    def is_closed(self) -> bool:
        """Tells whether `close` was called."""
    def close(self) -> None:
        """Lets no further request begin (BADSESSION); those that have begun may end."""

@final
class SessionLook:
    """Compares a session's figures from one look to the next; the first interval begins with the
    session. Each reader keeps a look of its own.
    """

    def again(
        self, table: SlotTable
    ) -> tuple[
        tuple[int, int, int],
        tuple[int, int, int, int, int, int],
        tuple[int, int, int, int, int] | None,
    ]:
        """Returns three tuples. Now: (slots, slots wanted, executing). Since the last look: (the
        most executing at a time, operations, bytes read, bytes written, ns waited for buffers, ns
        in the store). How long operations took since then: (count, sum, half of them within, 99 of
        100 within, longest), in ns, or None if there were none.
        """

@final
class Changes:
    """Makes change attributes: ctime in nanoseconds, plus changes within the same tick of the
    clock.

    It remembers the files that were changed lately, in 160 KiB. Any thread may use it.
    """

    def __init__(self) -> None: ...
    def bump(self, device: int, inode: int, ctime_ns: int) -> int:
        """Notes a change of the file, which has this ctime now; returns its change attribute."""
    def value(self, device: int, inode: int, ctime_ns: int) -> int:
        """Returns the change attribute of a file that has this ctime."""

@final
class WriteVerifier:
    """Holds the writeverf4 of WRITE and COMMIT, for all code that answers these. A new value tells
    clients to send again what they have not committed. Any thread may use it.
    """

    def __init__(self, value: bytes) -> None: ...
    @property
    def value(self) -> bytes:
        """Is the eight bytes that replies have now."""
    def renew(self) -> None:
        """Changes the value, since data that was written may be lost."""
