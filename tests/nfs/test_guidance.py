# SPDX-License-Identifier: BSD-2-Clause
"""Guidance as clients meet it: honest ones, hostile ones, and servers that lie to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from livedma.errors import LivedmaError
from livedma.nfs.guidance_protocol import (
    PROGRAM,
    VERSION,
    Advice,
    Instruction,
    Procedure,
    Progress,
    Report,
    Verdict,
)
from livedma.nfs.load import Plan, Result, Runner
from livedma.nfs.server import guidance as guidance_module
from livedma.nfs.server.config import Config
from livedma.nfs.server.facts import Facts
from livedma.nfs.server.guidance import OFFER_S, Guidance
from livedma.nfs.server.service import NfsService
from livedma.rdma import Device
from livedma.rpc import rdma_client, tcp_client
from livedma.rpc.client import Transport
from livedma.rpc.message import (
    Accepted,
    AcceptStatus,
    AuthStatus,
    Call,
    Denied,
    OpaqueAuth,
    decode_reply,
    encode_call,
)
from livedma.rpc.rdma_terms import Terms
from livedma.rpc.xdr import Decoder, Encoder, XdrError
from served import served

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT, PORT, TCP = f"{_NET}.60", f"{_NET}.61", 20049, 20491
LIMIT_S = 60.0
PEER = "192.0.2.7"


# What is said.


def test_advice_and_reports_come_through_as_they_are() -> None:
    advice = Advice(7, Instruction.MIGRATE, 50)
    assert Advice.decode(Decoder(advice.encode())) == advice
    assert advice.encode().hex() == "000000070000000200000032"
    report = Report(7, Progress.MOVING, 3, 12, "so far")
    assert Report.decode(Decoder(report.encode())) == report
    assert report.encode().hex() == (
        "0000000700000002000000030000000c00000006" + b"so far\0\0".hex()
    )


def test_long_words_are_cut_between_letters() -> None:
    said = Report.decode(Decoder(Report(1, Progress.REFUSED, words="ä" * 300).encode()))
    assert said.words == "ä" * 128


@pytest.mark.parametrize(
    "spoilt",
    [
        b"",
        Report(1, Progress.DONE).encode()[:-4],
        Report(1, Progress.DONE).encode() + bytes(4),
        b"".join(value.to_bytes(4, "big") for value in (1, 0, 0, 0, 0)),  # no such progress
        b"".join(value.to_bytes(4, "big") for value in (1, 5, 0, 0, 0)),
        b"".join(value.to_bytes(4, "big") for value in (1, 3, 0, 0, 257)) + bytes(260),
        b"".join(value.to_bytes(4, "big") for value in (1, 3, 0, 0, 4)) + b"\xff\xfe\xfd\xfc",
    ],
)
def test_a_report_that_is_none(spoilt: bytes) -> None:
    with pytest.raises(XdrError):
        Report.decode(Decoder(spoilt))


@pytest.mark.parametrize("spoilt", [b"", bytes(8), bytes(16), b"\0\0\0\1\0\0\0\3\0\0\0\1"])
def test_advice_that_is_none(spoilt: bytes) -> None:
    with pytest.raises(XdrError):
        Advice.decode(Decoder(spoilt))


# What is kept, without a server: connections are what they are known by.


class Rig:
    """Guidance over connections that exist by name only."""

    def __init__(self) -> None:
        self.now_s = 100.0
        options = SimpleNamespace(credits_max=1024, buffer_bytes=65536)
        window = SimpleNamespace(window=SimpleNamespace(size=16 << 20))
        self.connections = [
            SimpleNamespace(number=n, peer=PEER, is_open=True, options=options, memory=window)
            for n in (1, 2, 3)
        ]
        service = SimpleNamespace(
            rdma=[SimpleNamespace(connections=self.connections)],
            server=SimpleNamespace(config=Config()),
        )
        self.guidance = Guidance(cast(Any, service), lambda: self.now_s)

    def connection(self, number: int = 1) -> Any:
        return self.connections[number - 1]

    def advise(self, number: int = 1) -> Advice:
        return self.guidance.advise(self.connection(number))

    def report(self, progress: Progress, *figures: int, serial: int = 1) -> Verdict:
        return self.guidance.report(self.connection(), Report(serial, progress, *figures))

    def migrate(self) -> None:
        self.guidance.migrate(1, mapped_bytes=32 << 20, credits=128)

    @property
    def phase(self) -> str | None:
        state = self.guidance.state(1)
        return None if state is None else state.phase


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_client_that_does_not_ask_is_not_expected(rig: Rig) -> None:
    assert not rig.guidance.follows(1)
    rig.migrate()
    assert rig.phase == "asked"
    assert rig.guidance.expect(PEER) is None
    assert rig.advise().instruction == Instruction.MIGRATE
    assert rig.guidance.follows(1)
    assert rig.guidance.expect("192.0.2.8") is None
    guest = rig.guidance.expect(PEER)
    assert guest is not None
    assert guest.terms == Terms(32 << 20, 32 << 20, 128)
    assert rig.guidance.expect(PEER) is None  # once


def test_a_smaller_mapping_has_the_same_window(rig: Rig) -> None:
    rig.guidance.migrate(1, mapped_bytes=8 << 20, credits=64)
    rig.advise()
    guest = rig.guidance.expect(PEER)
    assert guest is not None
    assert guest.terms == Terms(16 << 20, 8 << 20, 64)


def test_who_was_told_first_is_expected_first(rig: Rig) -> None:
    rig.guidance.spread(1)
    rig.guidance.migrate(2, mapped_bytes=8 << 20, credits=64)
    rig.advise(2)
    rig.now_s += 1
    rig.advise(1)
    first, second = rig.guidance.expect(PEER), rig.guidance.expect(PEER)
    assert first is not None
    assert second is not None
    assert (first.terms is None, second.terms is None) == (False, True)


def test_the_way_of_a_migration(rig: Rig) -> None:
    rig.migrate()
    assert rig.advise() == Advice(1, Instruction.MIGRATE, guidance_module.ASK_AGAIN_MS)
    assert rig.report(Progress.OPENED) == Verdict.WRONG  # nobody came
    guest = rig.guidance.expect(PEER)
    assert guest is not None
    guest.came(rig.connection(2))
    assert rig.phase == "opened"
    assert rig.report(Progress.OPENED) == Verdict.TAKEN
    assert rig.report(Progress.MOVING, 5, 12) == Verdict.TAKEN
    assert rig.report(Progress.OPENED) == Verdict.WRONG
    with pytest.raises(LivedmaError, match="being moved"):
        rig.migrate()
    assert rig.report(Progress.MOVING, 13, 12) == Verdict.WRONG
    assert rig.report(Progress.DONE, 11, 12) == Verdict.WRONG
    assert rig.report(Progress.DONE, 1 << 31, 1 << 31) == Verdict.WRONG
    assert rig.report(Progress.DONE, 12, 12, serial=2) == Verdict.STALE
    assert rig.phase == "moving"
    assert rig.report(Progress.DONE, 12, 12) == Verdict.TAKEN
    assert rig.report(Progress.REFUSED) == Verdict.STALE
    assert rig.advise() == Advice(1, Instruction.STAY, guidance_module.ASK_AGAIN_MS)
    rig.guidance.closed(rig.connection())
    state = rig.guidance.state(1)
    assert state is not None
    assert (state.phase, state.moved, state.successor) == ("done", 12, 2)


def test_a_spread_moves_nobody(rig: Rig) -> None:
    rig.guidance.spread(1)
    assert rig.advise().instruction == Instruction.SPREAD
    guest = rig.guidance.expect(PEER)
    assert guest is not None
    guest.came(rig.connection(2))
    state = rig.guidance.state(1)
    assert state is not None
    assert state.is_over
    rig.guidance.spread(1)
    assert rig.advise() == Advice(2, Instruction.SPREAD, guidance_module.ASK_AGAIN_MS)
    assert rig.report(Progress.DONE, 1, 1, serial=2) == Verdict.WRONG


def test_a_connection_that_the_server_cannot_give(rig: Rig) -> None:
    rig.migrate()
    rig.advise()
    guest = rig.guidance.expect(PEER)
    assert guest is not None
    guest.refused("no memory")
    state = rig.guidance.state(1)
    assert state is not None
    assert (state.phase, state.words) == ("refused", "no memory")
    rig.migrate()  # may be tried again
    assert rig.advise().serial == 2


def test_an_offer_ends(rig: Rig) -> None:
    rig.migrate()
    rig.advise()
    rig.now_s += OFFER_S + 1
    assert rig.guidance.expect(PEER) is None
    assert rig.phase == "refused"
    assert rig.report(Progress.OPENED) == Verdict.STALE


def test_what_is_taken_back(rig: Rig) -> None:
    rig.migrate()
    rig.advise()
    rig.guidance.clear(1)
    assert rig.guidance.expect(PEER) is None
    assert rig.advise().instruction == Instruction.STAY
    assert rig.phase is None
    rig.guidance.clear(9)  # nobody's


def test_a_wish_may_be_replaced_before_it_was_told(rig: Rig) -> None:
    rig.guidance.spread(1)
    rig.migrate()
    assert rig.advise() == Advice(2, Instruction.MIGRATE, guidance_module.ASK_AGAIN_MS)


@pytest.mark.parametrize(
    ("mapped_bytes", "credit", "error"),
    [
        (0, 64, ValueError),
        (65535, 64, ValueError),
        (1 << 50, 64, ValueError),
        (1 << 20, 0, ValueError),
        (1 << 20, 1025, ValueError),
    ],
)
def test_what_cannot_be_wished(
    rig: Rig, mapped_bytes: int, credit: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        rig.guidance.migrate(1, mapped_bytes=mapped_bytes, credits=credit)
    with pytest.raises(LivedmaError, match="no connection 9"):
        rig.guidance.spread(9)
    rig.connection(2).is_open = False
    with pytest.raises(LivedmaError, match="no connection 2"):
        rig.guidance.spread(2)


def test_what_has_ended_is_remembered_for_a_while_only(rig: Rig) -> None:
    for number in range(10, 10 + 2 * guidance_module._ENDED_MOST):
        one = SimpleNamespace(**{**vars(rig.connection()), "number": number})
        rig.connections.append(one)
        rig.guidance.spread(number)
        rig.guidance.closed(cast(Any, one))
    assert rig.guidance.state(10) is None
    last = rig.guidance.state(10 + 2 * guidance_module._ENDED_MOST - 1)
    assert last is not None
    assert last.phase == "lost"
    assert not rig.guidance._guided


# With a server.


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NfsService]:
    with served(tmp_path, SERVER, PORT, tcp_port=TCP) as service:
        yield service


def answered(
    call: Call, arguments: bytes = b"", *, over: str = "rdma", times: int = 1
) -> tuple[Any, Decoder]:
    """The last reply's header, and a decoder behind it."""

    async def ask(transport: Transport) -> bytes:
        for _ in range(times):
            answer = await transport.call(encode_call(call, arguments))
        transport.close()
        return answer.message

    async def run() -> bytes:
        async with asyncio.timeout(LIMIT_S):
            if over == "tcp":
                return await ask(await tcp_client.connect(SERVER, TCP))
            with Device(CLIENT) as device:
                return await ask(await rdma_client.connect(SERVER, PORT, device=device))

    decoder = Decoder(asyncio.run(run()))
    return decode_reply(decoder), decoder


def call(procedure: int, version: int = VERSION, **more: Any) -> Call:
    return Call(0, PROGRAM, version, procedure, **more)


@pytest.mark.slow
def test_a_connection_asks_and_is_told(service: NfsService) -> None:
    reply, decoder = answered(call(Procedure.ADVISE), times=3)
    assert reply.status == AcceptStatus.SUCCESS
    assert Advice.decode(decoder) == Advice(0, Instruction.STAY, guidance_module.ASK_AGAIN_MS)
    reply, decoder = answered(call(Procedure.NULL))
    assert reply.status == AcceptStatus.SUCCESS
    decoder.finish()


@pytest.mark.slow
def test_a_report_about_nothing(service: NfsService) -> None:
    said = Report(1, Progress.DONE, 1, 1).encode()
    reply, decoder = answered(call(Procedure.REPORT), said, times=50)
    assert reply.status == AcceptStatus.SUCCESS
    assert decoder.enum(Verdict) == Verdict.STALE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "arguments", "status"),
    [
        (call(Procedure.ADVISE), bytes(4), AcceptStatus.GARBAGE_ARGS),
        (call(Procedure.NULL), bytes(4), AcceptStatus.GARBAGE_ARGS),
        (call(Procedure.REPORT), b"", AcceptStatus.GARBAGE_ARGS),
        (call(Procedure.REPORT), bytes(20), AcceptStatus.GARBAGE_ARGS),
        (call(3), b"", AcceptStatus.PROC_UNAVAIL),
        (call(0xFFFFFFFF), b"", AcceptStatus.PROC_UNAVAIL),
        (call(Procedure.ADVISE, 2), b"", AcceptStatus.PROG_MISMATCH),
        (Call(0, PROGRAM + 1, 1, 0), b"", AcceptStatus.PROG_UNAVAIL),
    ],
)
def test_calls_that_are_wrong(
    service: NfsService, wrong: Call, arguments: bytes, status: AcceptStatus
) -> None:
    reply, _ = answered(wrong, arguments)
    assert isinstance(reply, Accepted)
    assert reply.status == status


@pytest.mark.slow
def test_a_credential_that_is_none(service: NfsService) -> None:
    reply, _ = answered(call(Procedure.ADVISE, credential=OpaqueAuth(6, b"gss?")))
    assert isinstance(reply, Denied)
    assert reply.auth_status == AuthStatus.AUTH_BADCRED


@pytest.mark.slow
def test_over_tcp_there_is_no_guidance(service: NfsService) -> None:
    reply, _ = answered(call(Procedure.ADVISE), over="tcp")
    assert isinstance(reply, Accepted)
    assert reply.status == AcceptStatus.PROG_UNAVAIL


# A server that lies to its followers.

Lie = Callable[[], bytes]


def lied_to(service: NfsService, lie: Lie, act: Callable[[Facts], Awaitable[None]]) -> Result:
    service.guidance.advise = lambda _: SimpleNamespace(encode=lie)  # type: ignore
    facts = Facts(service)

    async def run() -> Result:
        with Device(CLIENT) as device:
            plan = Plan(sessions=4, depth=2, size=4096, seconds=600.0)
            runner = Runner(plan, SERVER, PORT, device=device)
            load = asyncio.create_task(runner.run())
            try:
                async with asyncio.timeout(4 * LIMIT_S):  # sixty connections, one after the other
                    await act(facts)
                    before = calls_served(facts)
                    while calls_served(facts) < before + 3000:  # with those that fill the files
                        await asyncio.sleep(0.01)
            finally:
                runner.stop()
                result = await load
            return result

    return asyncio.run(run())


def calls_served(facts: Facts) -> int:
    return sum(one.get("calls", 0) for one in facts.connections())


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie", [b"", bytes(8), bytes(16), Advice(1, Instruction.STAY, 1).encode() * 9]
)
def test_advice_that_makes_no_sense_ends_the_asking(service: NfsService, lie: bytes) -> None:
    asked: list[int] = []

    def tell() -> bytes:
        asked.append(1)
        return lie

    async def act(facts: Facts) -> None:
        while not asked:
            await asyncio.sleep(0.01)

    result = lied_to(service, tell, act)
    assert result.is_clean, result.as_json()
    assert (len(asked), result.connections) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("instruction", [Instruction.SPREAD, Instruction.MIGRATE])
def test_endless_instructions_are_bounded(service: NfsService, instruction: Instruction) -> None:
    """Always something new, to be asked for at once."""
    serial = 0

    def tell() -> bytes:
        nonlocal serial
        serial += 1
        out = Encoder()
        out.u32(serial, instruction, 0)
        return bytes(out)

    async def act(facts: Facts) -> None:
        most = 0
        while serial < 60:
            most = max(most, len(facts.connections()))
            await asyncio.sleep(0.01)
        assert most <= 9  # one is being closed when the next comes

    result = lied_to(service, tell, act)
    assert (result.counters.errors, result.counters.wrong, result.unanswered) == (0, 0, 0)
    assert result.is_clean, result.as_json()
    assert result.connections > 1
