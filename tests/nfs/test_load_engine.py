# SPDX-License-Identifier: BSD-2-Clause
"""The load against a server that does as each test likes: over a pair of sockets."""

from __future__ import annotations

import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from load_peer import CREDENTIAL, HANDLE, SESSION, STATEID, Answers, Request, TcpPeer

from livedma._native.load import LOST, Load
from livedma.nfs.numbers import Op, Status
from livedma.rpc.message import Call, encode_call

pytestmark = pytest.mark.slow

SIZE = 4096
BLOCKS = 16
FILE_BYTES = SIZE * BLOCKS
PATIENCE = 20.0


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


class Rig:
    """A load that runs, and its server."""

    def __init__(self, load: Load, peer: TcpPeer) -> None:
        self.load, self.peer = load, peer
        self.answers = peer.answers

    def add(self, slots: int = 4, seed: int = 7) -> int:
        return self.load.add_session(
            0,
            session_id=SESSION,
            sequences=[0] * slots,
            handle=HANDLE,
            stateid=STATEID,
            credential=CREDENTIAL,
            seed=seed,
            file_bytes=FILE_BYTES,
        )

    def filled(self) -> None:
        wait_until(lambda: self.load.figures().filled)

    def until(self, operations: int) -> None:
        wait_until(lambda: sum(self.load.figures().counters[:2]) >= operations)

    def stop(self) -> None:
        self.load.stop()
        wait_until(lambda: not self.load.figures().open)

    def stall(self) -> None:
        """So that all slots have something to do, at whatever rate."""
        seen = len(self.answers.requests)
        wait_until(lambda: len(self.answers.requests) > seen)
        self.peer.may_answer.clear()
        wait_until(lambda: self.load.figures().open == self.load.session(0).slots)
        self.peer.may_answer.set()

    @property
    def counters(self) -> Any:
        return self.load.figures().counters

    @property
    def words(self) -> str:
        return self.load.session(0).words


@contextmanager
def rig(
    rw: str = "read", *, depth: int = 4, answers: Answers | None = None, **options: Any
) -> Iterator[Rig]:
    peer = TcpPeer(answers or Answers(bytearray(FILE_BYTES)))
    load = Load(size=SIZE, depth=depth, rw=rw, **options)
    load.add_tcp(peer.near.fileno())
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield Rig(load, peer)
    finally:
        load.end()
        thread.join(PATIENCE)
        peer.close()
        load.close()


def wrong_word(words: str) -> int:
    """The place of the first wrong word; its first byte may be right by chance."""
    match = re.match(r"wrong data at offset (\d+): ", words)
    assert match, words
    return int(match[1]) // 8 * 8


def is_read(request: Request) -> bool:
    return request.op == Op.READ


@pytest.mark.parametrize("rw", ["read", "write", "mix"])
@pytest.mark.parametrize("sequential", [False, True])
def test_what_is_written_is_read_back(rw: str, sequential: bool) -> None:
    with rig(rw, sequential=sequential) as run:
        run.add()
        run.filled()
        fills = len(run.answers.requests)
        assert fills == (0 if rw == "write" else BLOCKS)
        run.load.begin()
        run.until(200)
        run.stop()
        counters = run.counters
        assert (counters.errors, counters.wrong, counters.delays) == (0, 0, 0)
        assert (counters.reads > 0, counters.writes > 0) == (rw != "write", rw != "read")
        assert counters.read_bytes == SIZE * counters.reads
        assert counters.written_bytes == SIZE * counters.writes
        assert run.load.session(0).latency.count == counters.reads + counters.writes
        assert len(run.answers.requests) - fills == counters.reads + counters.writes
        assert {request.slot for request in run.answers.requests} == {0, 1, 2, 3}


def test_sequential_goes_through_the_file() -> None:
    with rig("read", sequential=True, depth=1) as run:
        run.add(slots=1)
        run.filled()
        run.load.begin()
        run.until(2 * BLOCKS)
        reads = [request.offset // SIZE for request in run.answers.requests if is_read(request)]
        assert reads[: 2 * BLOCKS] == [*range(BLOCKS), *range(BLOCKS)]


def test_a_wrong_byte_is_found() -> None:
    with rig() as run:
        run.add()
        run.filled()
        run.answers.file[5 * SIZE + 1001] ^= 0x40
        run.load.begin()
        wait_until(lambda: run.counters.wrong)
        assert run.counters.errors == run.counters.wrong
        assert f"wrong data at offset {5 * SIZE + 1001}: " in run.words
        assert " instead of " in run.words
        run.until(100)  # the others go on


def test_data_of_another_place_is_told() -> None:
    with rig() as run:
        run.add()
        run.filled()
        run.answers.file[3 * SIZE : 4 * SIZE] = run.answers.file[8 * SIZE : 9 * SIZE]
        run.load.begin()
        wait_until(lambda: run.counters.wrong)
        assert wrong_word(run.words) == 3 * SIZE
        assert f"which belongs to offset {8 * SIZE}" in run.words


def test_a_write_that_got_lost_is_found() -> None:
    with rig("mix", depth=1) as run:
        run.add(slots=1)
        run.filled()
        run.answers.keeps = lambda request: request.offset != 2 * SIZE
        run.load.begin()
        wait_until(lambda: run.counters.wrong)
        assert wrong_word(run.words) == 2 * SIZE


def test_verification_can_be_left_out() -> None:
    with rig(verify=False) as run:
        run.add()
        run.filled()
        run.answers.file[:] = bytes(FILE_BYTES)
        run.load.begin()
        run.until(50)
        assert run.counters.errors == 0


def test_statuses_are_counted_and_told() -> None:
    with rig() as run:
        run.add()
        run.filled()
        run.answers.status = lambda request: (
            (request.op, Status.IO) if is_read(request) and request.offset == SIZE else None
        )
        run.load.begin()
        wait_until(lambda: run.counters.errors >= 2)
        assert run.load.figures().statuses.keys() == {(Op.READ, Status.IO)}
        assert run.words == f"operation 25 at offset {SIZE} failed with status 5"
        assert run.answers.misordered == 0


def test_a_file_that_cannot_be_filled_ends_the_session() -> None:
    answers = Answers(bytearray(FILE_BYTES), status=lambda request: (request.op, Status.NOSPC))
    with rig(answers=answers) as run:
        run.add()
        wait_until(lambda: run.load.figures().failed)
        assert "failed with status 28" in run.words


@pytest.mark.parametrize("op", [Op.SEQUENCE, Op.READ])
@pytest.mark.parametrize("status", [Status.DELAY, Status.GRACE])
def test_a_busy_server_is_asked_again(op: Op, status: Status) -> None:
    refused: set[int] = set()

    def refuse(request: Request) -> tuple[Op, Status] | None:
        if not is_read(request) or request.slot in refused:
            return None
        refused.add(request.slot)
        return op, status

    with rig() as run:
        run.add()
        run.filled()
        run.answers.status = refuse
        run.load.begin()
        wait_until(lambda: len(refused) == 4 and sum(run.counters[:2]) > 20)
        assert (run.counters.errors, run.answers.misordered) == (0, 0)
        assert run.counters.delays == 4


@pytest.mark.parametrize("interval_ns", [0, 1_000_000])
@pytest.mark.parametrize("forgets", [True, False])
def test_the_servers_target_is_followed(forgets: bool, interval_ns: int) -> None:
    with rig(interval_ns=interval_ns) as run:
        run.answers.forgets_slots = forgets
        run.add()
        run.filled()
        run.load.begin()
        run.until(50)
        run.answers.target = 1
        wait_until(lambda: run.load.session(0).slots == 2)
        wait_until(lambda: run.answers.requests[-1].highest == 1)  # all others have ended
        seen = len(run.answers.requests)
        run.until(sum(run.counters[:2]) + 50)
        later = run.answers.requests[seen:]
        assert {request.slot for request in later} <= {0, 1}
        assert {request.highest for request in later} == {1}
        run.answers.target = 9
        seen = len(run.answers.requests)
        run.stall()
        wait_until(lambda: {r.slot for r in run.answers.requests[seen:]} == {0, 1, 2, 3})
        run.until(sum(run.counters[:2]) + 50)
        assert run.counters.errors == 0
        assert run.answers.misordered == (0 if forgets else 2)  # and then as it was


@pytest.mark.parametrize("rw", ["read", "write"])
def test_what_was_done_in_part_is_continued(rw: str) -> None:
    with rig(rw, depth=1) as run:
        run.answers.most = 1000
        run.add(slots=1)
        run.filled()
        run.load.begin()
        run.until(20)
        run.stop()
        assert run.counters.errors == 0
        first = run.answers.requests[: 5 if rw == "write" else 5 * BLOCKS][-5:]
        assert [request.count for request in first] == [4096, 3096, 2096, 1096, 96]


def test_the_end_of_a_file_is_no_data() -> None:
    with rig() as run:
        run.add()
        run.filled()
        del run.answers.file[SIZE + 100 :]
        run.load.begin()
        wait_until(lambda: run.counters.errors)
        assert "ended after" in run.words


def cut(_: Request, reply: bytes) -> bytes:
    return reply[:-4]


def longer(_: Request, reply: bytes) -> bytes:
    return reply + bytes(4)


def other_session(_: Request, reply: bytes) -> bytes:
    return reply.replace(SESSION, SESSION[::-1])


def other_slot(request: Request, reply: bytes) -> bytes:
    at = reply.index(SESSION) + 20
    return reply[:at] + (request.slot + 1).to_bytes(4, "big") + reply[at + 4 :]


def other_sequence(request: Request, reply: bytes) -> bytes:
    at = reply.index(SESSION) + 16
    return reply[:at] + (request.sequence + 1).to_bytes(4, "big") + reply[at + 4 :]


def too_much(_: Request, reply: bytes) -> bytes:
    """A count of data that is above what was asked for, and above what is there."""
    at = reply.index(SESSION) + 16 + 20 + 8 + 8 + 4
    assert int.from_bytes(reply[at : at + 4], "big") == SIZE
    return reply[:at] + (SIZE + 4).to_bytes(4, "big") + reply[at + 4 :]


def other_status(_: Request, reply: bytes) -> bytes:
    """The COMPOUND failed, but none of its operations did."""
    return reply[:24] + (5).to_bytes(4, "big") + reply[28:]


def more_results(_: Request, reply: bytes) -> bytes:
    return reply[:32] + (4).to_bytes(4, "big") + reply[36:]


@pytest.mark.parametrize(
    "edit",
    [
        cut,
        longer,
        other_session,
        other_slot,
        other_sequence,
        too_much,
        other_status,
        more_results,
    ],
)
def test_a_reply_to_something_else_is_an_error(
    edit: Callable[[Request, bytes], bytes],
) -> None:
    with rig(depth=1) as run:
        run.add(slots=1)
        run.filled()
        run.answers.edit = lambda request, reply: (
            edit(request, reply) if len(run.answers.requests) == BLOCKS + 1 else reply
        )
        run.load.begin()
        wait_until(lambda: run.counters.errors)
        assert "is none to the call" in run.words


def test_a_call_that_rpc_refuses() -> None:
    with rig() as run:
        run.add()
        run.filled()
        denied = (1).to_bytes(4, "big") + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
        run.answers.edit = lambda _, reply: reply[:4] + (1).to_bytes(4, "big") + denied
        run.load.begin()
        wait_until(lambda: run.counters.errors)
        assert "refused a call (RPC status 1001)" in run.words


def test_records_that_answer_nothing_are_ignored() -> None:
    with rig() as run:
        run.add()
        run.filled()
        run.peer.extra = (0x8000000C).to_bytes(4, "big") + b"\xff" * 4 + bytes([0, 0, 0, 1]) * 2
        run.load.begin()
        run.until(50)
        assert run.counters.errors == 0


@pytest.mark.parametrize(
    "extra",
    [b"\xff\xff\xff\xff", b"\x80\x00\x00\x04abcd", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"],
)
def test_a_stream_that_breaks_the_rules_ends(extra: bytes) -> None:
    with rig() as run:
        run.add()
        run.filled()
        run.peer.extra = extra
        run.load.begin()
        wait_until(lambda: run.load.figures().lost == 1)
        assert run.load.link_error(0) == 71  # EPROTO
        assert not run.load.figures().open


def test_a_session_without_files_to_fill_is_ready_also_where_its_connection_is_lost() -> None:
    with rig("write") as run:
        run.peer.cut()
        wait_until(lambda: run.load.link_error(0))
        run.add()
        assert (run.load.figures().filled, run.load.figures().lost) == (1, 1)


def test_a_lost_connection_leaves_its_sessions_waiting() -> None:
    with rig() as run:
        run.add()
        run.filled()
        run.load.begin()
        run.until(10)
        run.peer.cut()
        wait_until(lambda: run.load.figures().lost == 1)
        assert run.load.link_error(0)
        assert (run.load.figures().running, run.load.figures().open) == (0, 0)
        assert run.load.places() == [LOST]
        assert run.load.add_session(
            0,
            session_id=SESSION,
            sequences=[0],
            handle=HANDLE,
            stateid=STATEID,
            credential=CREDENTIAL,
            seed=1,
            file_bytes=FILE_BYTES,
        )
        assert run.load.figures().lost == 2
        with pytest.raises(OSError, match="connected"):
            run.load.call(0, 1, encode_call(Call(0, 100003, 4, 0)))


def test_calls_of_others_on_the_same_connection() -> None:
    with rig() as run:
        run.add()
        run.filled()
        run.load.begin()
        null = encode_call(Call(0, 100003, 4, 0))
        for user in (5, 6):
            run.load.call(0, user, null)
        found: list[tuple[int, int, bytes]] = []
        while len(found) < 2:
            assert select.select([run.load], [], [], PATIENCE)[0]
            found += run.load.replies()
        assert {user for user, _, _ in found} == {5, 6}
        assert all(
            not error and message[4:] == bytes([0, 0, 0, 1]) + bytes(16)
            for _, error, message in found
        )
        run.until(50)
        assert run.counters.errors == 0


def test_open_loop_counts_from_when_it_should_have_begun() -> None:
    """A server that does not answer for a while delays all that was due meanwhile."""
    with rig(interval_ns=10_000_000) as run:
        run.add()
        run.filled()
        run.load.begin()
        run.until(5)
        run.load.figures()
        run.peer.may_answer.clear()
        time.sleep(0.5)
        run.peer.may_answer.set()
        due = sum(run.counters[:2]) + 40
        run.until(due)
        latency = run.load.session(0).latency
        # One operation at each 10 ms: of those due in half a second, 30 waited for 200 ms and more.
        # With four slots in a closed loop, four had.
        slow = sum(latency.quantile_ns(1 - i / latency.count) >= 200e6 for i in range(30))
        assert slow == 30


def test_open_loop_ends() -> None:
    with rig(interval_ns=1_000_000) as run:
        run.add()
        run.filled()
        run.load.begin()
        run.until(10)
        run.stop()
        before = run.counters
        time.sleep(0.05)
        assert run.counters == before


def test_sessions_come_while_others_run() -> None:
    answers = Answers(bytearray(FILE_BYTES))
    with rig("write", answers=answers) as run:
        run.load.begin()
        run.add(slots=2)
        run.until(20)
        assert run.load.figures().running == 1
        with pytest.raises(ValueError, match="16 bytes"):
            run.load.add_session(
                0,
                session_id=b"short",
                sequences=[0],
                handle=HANDLE,
                stateid=STATEID,
                credential=CREDENTIAL,
                seed=1,
                file_bytes=FILE_BYTES,
            )
        with pytest.raises(OSError, match="Invalid"):  # a file that is too small for the depth
            run.load.add_session(
                0,
                session_id=SESSION,
                sequences=[0],
                handle=HANDLE,
                stateid=STATEID,
                credential=CREDENTIAL,
                seed=1,
                file_bytes=SIZE,
            )


def test_a_slot_whose_call_was_executed_before_goes_on() -> None:
    """RETRY_UNCACHED_REP says that the sequence was used; both places for it are allowed."""
    said: list[Op] = []

    def status(request: Request) -> tuple[Op, Status] | None:
        if not is_read(request) or len(said) >= 2:
            return None
        said.append(Op.SEQUENCE)
        run.answers.sequences[request.slot] = request.sequence
        return Op.SEQUENCE, Status.RETRY_UNCACHED_REP

    with rig(depth=1) as run:
        run.add(slots=1)
        run.filled()
        run.answers.status = status
        run.load.begin()
        run.until(10)
        assert (len(said), run.counters.errors, run.answers.misordered) == (2, 0, 0)
