# SPDX-License-Identifier: BSD-2-Clause
"""A whole server under attack: by peers that want all there is, and give nothing back."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.nfs import calling
from tests.nfs.accelerating import rdma_peer
from tests.nfs.besieged import (
    DYING,
    INTRUDERS,
    PATIENCE_S,
    SERVER,
    STRANGER,
    Intruder,
    Siege,
    Stream,
    wait_until,
)
from tests.nfs.besieged_server import (
    CLIENTS_MOST,
    CREDITS,
    OPEN_FILES_MOST,
    RDMA_CONNECTIONS,
    SESSIONS_MOST,
    STATES_MOST,
)
from tests.nfs.calling import PUTROOTFH, op

from livedma.nfs.numbers import PROGRAM, VERSION, Op, Status
from livedma.rdma import cm
from livedma.rpc.message import Call, decode_reply, encode_call
from livedma.rpc.xdr import Decoder, Encoder

pytestmark = pytest.mark.slow

MIB = 1 << 20
GROWTH_MOST = 48 * MIB  # of what an attack may cost, roughly: allocators keep some


VANISHING = """
import os, signal, sys
sys.path[:0] = sys.argv[3:]
import rdma_peer
from livedma.rdma import Device
from tests.rpc.rdma_chunks import ReadChunk

peer = rdma_peer.Peer(Device(sys.argv[1]), sys.argv[2], size=1 << 20)
for number in range(12):
    body = bytes([0, 0, 0, 0] * 3)
    peer.call(body, reads=(ReadChunk(16, (peer.segment(0, 1 << 20),)),))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module", autouse=True)
def _death(whole_siege: Siege) -> None:
    """A peer dies in the middle of transfers: its calls want 12 MiB, and hold all of their buffers
    while others attack."""
    path = Path(__file__).resolve().parents[1] / "rpc"
    command = [sys.executable, "-c", VANISHING, DYING, SERVER, str(path)]
    assert subprocess.run(command, check=False, timeout=PATIENCE_S).returncode == -9
    assert whole_siege.count_dying() == 1


def sent(ops: bytes, xid: int) -> bytes:
    return encode_call(Call(xid, PROGRAM, VERSION, 1, STRANGER), calling.compound(ops))


def results(stream: Stream, calls: list[bytes]) -> list[tuple[Status, Decoder]]:
    """Many calls without a session, some at a time."""
    ret = []
    for start in range(0, len(calls), 64):
        some = calls[start : start + 64]
        for xid, ops in enumerate(some):
            stream.send(sent(ops, xid))
        for _ in some:
            decoder = Decoder(stream.receive())
            reply = decode_reply(decoder)
            status = Status(decoder.u32())
            decoder.skip(16)
            ret.append((reply.xid, status, decoder))
        ret[start:] = sorted(ret[start:], key=lambda one: one[0])
    return [(status, decoder) for _, status, decoder in ret]


def test_clients_and_sessions_without_end(siege: Siege) -> None:
    """Introductions replace each other; sessions end with NOSPC; both go with their leases."""
    before = siege.measure_rss()
    with Stream(siege) as stream:
        many = [calling.exchange_id(b"crowd %d" % number) for number in range(3 * CLIENTS_MOST)]
        assert {status for status, _ in results(stream, many)} == {Status.OK}
        assert len(siege.control.ask("clients")) <= CLIENTS_MOST

        greedy = stream.peer()
        number, sequence, _ = greedy.exchange(b"greedy")
        wanted = calling.Channel(*(0xFFFFFFFF,) * 5)
        status = Status.OK
        for count in range(SESSIONS_MOST + 10):
            result = greedy.send(calling.create_session(number, sequence + count, fore=wanted))
            if result.status != Status.OK:
                status = result.status
                break
            result.last.skip(16 + 4 + 4 + 4 + 4 + 4)
            cached, operations, slots = result.last.u32(), result.last.u32(), result.last.u32()
            assert (cached, operations, slots) == (4096, 64, 64)
        assert status == Status.NOSPC
        assert siege.sessions() == SESSIONS_MOST
        siege.good.check()
    siege.await_leases()
    with Intruder(siege) as late:  # there is room again
        late.enter()
        late.leave()
    assert siege.measure_rss() - before < GROWTH_MOST


def test_reply_caches_that_are_full(siege: Siege) -> None:
    """Each slot of many sessions keeps the longest reply that it may."""
    before = siege.measure_rss()
    wanted = calling.Channel(1 << 20, 1 << 20, 1 << 20, 64, 1024)
    with Stream(siege) as stream:
        peer = stream.peer()
        number, sequence, _ = peer.exchange(b"hoarder")
        listed = op(
            Op.READDIR,
            lambda out: (out.u64(0), out.fixed(bytes(8), 8), out.u32(3800, 3800, 0)),
        )
        down = op(Op.LOOKUP, lambda out: out.opaque(b"many"))
        for count in range(8):
            session = peer.another(number, sequence + count, fore=wanted)
            for slot in range(64):
                first = calling.sequence(session, 1, slot, 63, cache=True)
                assert peer.status(first, PUTROOTFH, down, listed) == Status.OK
        kept = sum(one["counters"]["reply_bytes"] for one in siege.control.ask("sessions"))
        assert 8 * 64 * 3000 < kept < 8 * 64 * 4200
        assert peer.status(calling.sequence(session, 1, 64, 64)) == Status.BADSLOT
        Hoarder(stream, b"hoarder", b"restart.").leave()
    assert siege.measure_rss() - before < GROWTH_MOST


def test_opens_and_locks_up_to_the_limit(siege: Siege, intruder: Intruder) -> None:
    """DELAY beyond. A client that vanishes with all of it loses it to the first that wants some."""
    with Stream(siege) as stream:
        locker, opener = Hoarder(stream, b"of locks"), Hoarder(stream, b"of files")
        result = locker.do(PUTROOTFH, intruder.open_op(b"file"))
        stateid = result.last.fixed(16)
        locks = 0
        while (status := locker.do(intruder.putfh(), lock_by(stateid, locks)).status) == Status.OK:
            locks += 1
            assert locks < STATES_MOST
        assert (status, locks) == (Status.DELAY, (STATES_MOST - 1) // 2 + 1)

        opens = 0
        while True:
            asked = intruder.open_op(b"file", owner=b"opener %d" % opens)
            status = opener.do(PUTROOTFH, asked).status
            if status != Status.OK:
                break
            opens += 1
        assert status == Status.DELAY
        assert OPEN_FILES_MOST - 20 < opens < OPEN_FILES_MOST
        siege.good.check()
    # Both are gone, and their state is kept for them until room is needed.
    end_s = time.monotonic() + PATIENCE_S
    while True:
        result = intruder.do(PUTROOTFH, intruder.open_op(b"other", owner=b"patient"))
        if result.status != Status.DELAY:
            break
        assert time.monotonic() < end_s, "what a dead client held is never given to others"
        time.sleep(0.1)
    assert result.status == Status.OK
    stateid = result.last.fixed(16)
    closing = op(Op.CLOSE, lambda out: (out.u32(0), out.raw(stateid)))
    other = intruder.lookup(b"other")
    at = op(Op.PUTFH, lambda out: out.opaque(other))
    assert intruder.do(at, closing).status == Status.OK
    with Stream(siege) as stream:  # as after a restart: what they were before goes
        for name in (b"of locks", b"of files"):
            Hoarder(stream, name, b"restart.").leave()


class Hoarder:
    """A client over TCP with one slot."""

    def __init__(self, stream: Stream, owner: bytes, verifier: bytes = calling.VERIFIER) -> None:
        self._peer = stream.peer()
        self.client, first, _ = self._peer.exchange(owner, verifier=verifier)
        self._session = self._peer.another(self.client, first)
        self._number = 0
        assert self.do(calling.reclaim_complete()).status == Status.OK

    def do(self, *ops: bytes) -> calling.Result:
        self._number += 1
        return self._peer.send(calling.sequence(self._session, self._number), *ops)

    def leave(self) -> None:
        assert self._peer.status(calling.destroy_session(self._session)) == Status.OK
        assert self._peer.status(calling.destroy_clientid(self.client)) == Status.OK


def lock_by(stateid: bytes, number: int) -> bytes:
    """A lock-owner's first, far from all others."""

    def write(out: Encoder) -> None:
        out.u32(2, 0)
        out.u64(100 * number)
        out.u64(10)
        out.u32(1, 0)
        out.raw(stateid)
        out.u32(0)
        out.u64(0)
        out.opaque(b"locker %d" % number)

    return op(Op.LOCK, write)


def test_connections_that_never_speak(siege: Siege) -> None:
    """Over RDMA they give way to a peer that does; over TCP there is room for many."""
    before = siege.measure_rss()
    with ExitStack() as stack:
        silent = [
            stack.enter_context(rdma_peer.Peer(siege.device, SERVER))
            for _ in range(RDMA_CONNECTIONS - 1 - siege.count_dying())
        ]
        for _ in range(200):
            stack.enter_context(Stream(siege))
        wait_until(lambda: len(siege.control.ask("connections")) > 200, "all are there")
        with Intruder(siege) as late:
            late.enter()
            late.leave()
        silent[0].await_end()  # the one that was silent for longest
        assert not any(one.failed for one in silent[1:])
    assert siege.measure_rss() - before < GROWTH_MOST


def test_connections_that_all_speak(siege: Siege) -> None:
    """Nobody is cut off for somebody new."""
    with ExitStack() as stack:
        made = [
            stack.enter_context(Intruder(siege))
            for _ in range(RDMA_CONNECTIONS - 1 - siege.count_dying())
        ]
        for one in made:
            assert one.rpc(b"", procedure=0)
        with pytest.raises(cm.ConnectError):
            rdma_peer.Peer(siege.device, SERVER)
        for one in made:
            assert one.rpc(b"", procedure=0)


def test_replies_that_are_not_taken_over_tcp(siege: Siege) -> None:
    """Calls stay in the socket, and replies are bounded: 256 MiB are asked for."""
    before = siege.measure_rss()
    large = siege.export / "large"
    large.write_bytes(bytes(MIB))
    large.chmod(0o666)
    anonymous = op(Op.READ, lambda out: (out.raw(bytes(16)), out.u64(0), out.u32(MIB)))
    down = op(Op.LOOKUP, lambda out: out.opaque(b"large"))
    fore = calling.Channel(1 << 21, 1 << 21, 4096, 64, 64)
    with Stream(siege) as stream:
        _, session = stream.peer().session(b"deaf", fore=fore)
        stream.sock.settimeout(0.5)
        asked = 0
        try:
            for number in range(1, 5):
                for slot in range(64):
                    first = calling.sequence(session, number, slot, 63)
                    ops = calling.compound(first, PUTROOTFH, down, anonymous)
                    call = Call(asked, PROGRAM, VERSION, 1, STRANGER)
                    stream.send(encode_call(call, ops))
                    asked += 1
        except TimeoutError:
            pass  # it is not read from any more
        siege.good.check()
        facts = [one for one in siege.control.ask("connections") if one["peer"] == INTRUDERS]
        assert facts[0]["unsent_bytes"] < 16 * MIB
        assert siege.measure_rss() - before < GROWTH_MOST
    with Stream(siege) as stream:
        Hoarder(stream, b"deaf", b"restart.").leave()


def test_replies_that_are_not_taken_over_rdma(siege: Siege) -> None:
    """No Receives for them: cut off after a while, with what its credits allowed."""
    with Intruder(siege, receives=8) as deaf:
        deaf.enter()
        message = deaf.message(
            op(Op.READ, lambda out: (out.raw(deaf.stateid), out.u64(0), out.u32(1000)))
        )
        number = len(siege.control.ask("connections"))
        for slot in range(CREDITS):
            deaf.peer.call(message[4:], xid=slot)
        # Replies fill its Receives, which nobody empties.
        wait_until(lambda: len(siege.control.ask("connections")) < number, "it is cut off")
        with Intruder(siege) as again:
            again.take_over(deaf)
            again.leave()


def test_half_a_record(siege: Siege) -> None:
    """And records that are too long, which are cut at once."""
    with ExitStack() as stack:
        for _ in range(50):
            one = stack.enter_context(Stream(siege))
            one.sock.sendall(b"\x80\x10\x00\x00" + bytes(1000))
        with Stream(siege) as long:
            long.sock.sendall(b"\xff\xff\xff\xff")
            with pytest.raises(ConnectionError):
                long.receive()
        with Stream(siege) as endless:
            fragments = (b"\x00\x00\x04\x00" + bytes(1024)) * 2000
            with suppress(ConnectionError):  # or it was faster than the server
                endless.sock.sendall(fragments)
            with pytest.raises(ConnectionError):
                endless.receive()
        siege.good.check()


def test_the_dead_are_noticed(siege: Siege) -> None:
    """The last one of all, since it takes a while: what was waiting for the dead is free again."""
    wait_until(lambda: not siege.count_dying(), "it is noticed")
