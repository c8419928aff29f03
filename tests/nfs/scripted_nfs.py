# SPDX-License-Identifier: BSD-2-Clause
"""A server in the test's own event loop that does to each call what the script says.

It keeps a flat directory in memory, and sessions with a true reply cache: `executed` lists what was
done, not what was repeated. Only what a test of the client needs is there.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.rpc.records import encode_record

from livedma.nfs.client import Client
from livedma.nfs.numbers import Attribute, FileType, NfsError, Op, Status
from livedma.rpc.message import Accepted, decode_call, encode_reply
from livedma.rpc.xdr import Decoder, Encoder

ROOT = b"/"


class Fate(Enum):
    """What becomes of a call."""

    ANSWER = "executed and answered"
    LOSE_CALL = "the connection is cut before it is executed"
    LOSE_REPLY = "executed, then the connection is cut"
    CUT_REPLY = "executed, then the connection is cut within the reply"
    SILENCE = "executed, but never answered"
    SWALLOW = "neither executed nor answered"


@dataclass
class Slot:
    sequence: int = 0
    reply: bytes | None = None


@dataclass
class Session:
    client: int
    slots: dict[int, Slot] = field(default_factory=dict)
    connections: set[int] = field(default_factory=set)


@dataclass
class Call:
    """What the operations of a COMPOUND share."""

    connection: int
    session: Session | None = None
    slot: Slot | None = None
    keep: bool = False
    current: bytes | None = None
    saved: bytes | None = None


class ScriptedServer:
    """`async with ScriptedServer() as server`, then `server.port`."""

    def __init__(self) -> None:
        self.files: dict[bytes, bytearray | None] = {}  #: None: a directory
        self.executed: list[Op] = []
        self.calls: list[list[Op]] = []  #: operations of each call that came, repeated or not
        self.fates: dict[int, Fate] = {}  #: by the number of the call
        self.edit: Callable[[int, bytes], bytes] = lambda number, reply: reply
        self.before: Callable[[list[Op]], Status | None] = lambda operations: None
        self.highest = self.target = 63
        self.flags = 0  #: of SEQUENCE
        self.lease_s = 30
        self.conflict: tuple[int, int, bytes] | None = None  #: a client that wants a lock gets this
        self.in_grace = False
        self.write_verifier = b"life   1"
        self.hold: asyncio.Event | None = None  #: replies wait for it
        self.sessions: dict[bytes, Session] = {}
        self.clients: dict[bytes, tuple[int, bytes]] = {}
        self.confirmed: set[int] = set()
        self.stateids: dict[bytes, bytes] = {}  #: other: handle
        self.locks: list[tuple[bytes, int, int, bytes]] = []  #: handle, start, end, owner
        self.reclaimed: list[Op] = []
        self.life = 1
        self._serial = 0
        self._connection = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def client(self, **options: Any) -> Client:
        options = {"patience_s": 10.0, "call_s": 5.0, **options}
        return await Client.connect("127.0.0.1", self.port, **options)

    def cut(self) -> None:
        """Ends all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    def restart(self, *, cuts: bool = True) -> None:
        """Forgets clients, sessions, opens and locks; files stay. A grace period begins."""
        self.life += 1
        self.sessions.clear()
        self.clients.clear()
        self.stateids.clear()
        self.locks.clear()
        self.in_grace = True
        self.write_verifier = b"life%4d" % self.life
        if cuts:
            self.cut()

    def set_slots(self, highest: int, target: int) -> None:
        """How many slots there are, and should be; those above are forgotten."""
        self.highest, self.target = highest, target
        for session in self.sessions.values():
            session.slots = {n: slot for n, slot in session.slots.items() if n <= highest}

    # The wire.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection += 1
        number = self._connection
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                (word,) = struct.unpack(">I", await reader.readexactly(4))
                message = await reader.readexactly(word & 0x7FFFFFFF)
                answer = asyncio.ensure_future(self._answer(number, message, writer))
                self._tasks.add(answer)
                if self.hold is None:
                    await answer
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, connection: int, message: bytes, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder(message)
        call = decode_call(decoder)
        number = len(self.calls)
        fate = self.fates.get(number, Fate.ANSWER)
        self.calls.append([])
        if fate == Fate.LOSE_CALL:
            writer.transport.abort()
        if fate in (Fate.LOSE_CALL, Fate.SWALLOW):
            return
        results = self._compound(connection, decoder, self.calls[-1])
        reply = encode_record(self.edit(number, encode_reply(Accepted(call.xid), results)))
        if self.hold is not None:
            await self.hold.wait()
        if fate == Fate.SILENCE:
            return
        if fate != Fate.LOSE_REPLY:
            writer.write(reply[: len(reply) // 2] if fate == Fate.CUT_REPLY else reply)
        if fate != Fate.ANSWER:
            writer.close()

    def _compound(self, connection: int, decoder: Decoder, seen: list[Op]) -> bytes:
        decoder.opaque()
        decoder.u32()
        operations = decoder.u32()
        call = Call(connection)
        results: list[bytes] = []
        status = Status.OK
        for _ in range(operations):
            op = decoder.enum(Op)
            seen.append(op)
            out = Encoder()
            try:
                wanted = self.before(seen)
                if wanted is not None:
                    raise NfsError(wanted)
                getattr(self, f"_{op.name.lower()}")(call, decoder, out)
                if op != Op.SEQUENCE:
                    self.executed.append(op)
            except NfsError as error:
                status = error.status
                results.append(struct.pack(">II", op, status) + error.body)
                break
            results.append(struct.pack(">II", op, status) + bytes(out))
            if call.slot is not None and call.slot.reply is not None:
                return call.slot.reply
        whole = struct.pack(">III", status, 0, len(results)) + b"".join(results)
        if call.slot is not None and (call.keep or len(results) == 1):
            call.slot.reply = whole
        return whole

    # Sessions.

    def _exchange_id(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        verifier, owner = decoder.fixed(8), decoder.opaque()
        decoder.u32(), decoder.u32(), decoder.u32()
        known = self.clients.get(owner)
        if known is None or known[1] != verifier:
            self._serial += 1
            known = self.clients[owner] = self._serial, verifier
        confirmed = known[0] in self.confirmed
        out.u64(known[0])
        out.u32(1, 0x80000000 if confirmed else 0, 0)
        out.u64(0)
        out.opaque(b"scripted")
        out.opaque(b"scripted")
        out.u32(0)

    def _create_session(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        client, sequence = decoder.u64(), decoder.u32()
        decoder.u32()
        fore = [decoder.u32() for _ in range(7)]
        decoder.fixed(7 * 4 + 8)
        if client not in {number for number, _ in self.clients.values()}:
            raise NfsError(Status.STALE_CLIENTID)
        self.confirmed.add(client)
        name = struct.pack(">QII", client, sequence, self.life)
        session = self.sessions.setdefault(name, Session(client))
        session.connections.add(call.connection)
        fore[5] = min(fore[5], self.target + 1)
        out.fixed(name, 16)
        out.u32(sequence, 0, *fore, 0, 4096, 4096, 0, 2, 1, 0)

    def _bind_conn_to_session(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        name = decoder.fixed(16)
        decoder.u32(), decoder.boolean()
        if name not in self.sessions:
            raise NfsError(Status.BADSESSION)
        self.sessions[name].connections.add(call.connection)
        out.fixed(name, 16)
        out.u32(1, 0)

    def _sequence(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        name = decoder.fixed(16)
        sequence, number, _ = decoder.u32(), decoder.u32(), decoder.u32()
        call.keep = decoder.boolean()
        session = self.sessions.get(name)
        if session is None:
            raise NfsError(Status.BADSESSION)
        if call.connection not in session.connections:
            raise NfsError(Status.CONN_NOT_BOUND_TO_SESSION)
        if number > self.highest:
            raise NfsError(Status.BADSLOT)
        slot = session.slots.setdefault(number, Slot())
        if sequence == slot.sequence:
            call.slot = slot
            if slot.reply is None:
                slot.reply = self._uncached(name, sequence, number, decoder.peek())
            return
        if sequence != slot.sequence + 1:
            raise NfsError(Status.SEQ_MISORDERED)
        slot.sequence, slot.reply = sequence, None
        call.session, call.slot = session, slot
        out.fixed(name, 16)
        out.u32(sequence, number, self.highest, self.target, self.flags)

    def _uncached(self, name: bytes, sequence: int, number: int, second: int) -> bytes:
        out = Encoder()
        out.u32(Status.RETRY_UNCACHED_REP, 0, 2, Op.SEQUENCE, 0)
        out.fixed(name, 16)
        out.u32(sequence, number, self.highest, self.target, self.flags)
        out.u32(second, Status.RETRY_UNCACHED_REP)
        return bytes(out)

    def _destroy_session(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        if self.sessions.pop(decoder.fixed(16), None) is None:
            raise NfsError(Status.BADSESSION)

    def _destroy_clientid(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        decoder.u64()

    def _reclaim_complete(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        decoder.boolean()
        self.in_grace = False

    # Names.

    def _putrootfh(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        call.current = ROOT

    def _putfh(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        call.current = decoder.opaque()
        if call.current != ROOT and call.current not in self.files:
            raise NfsError(Status.STALE)

    def _getfh(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        assert call.current is not None
        out.opaque(call.current)

    def _savefh(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        call.saved = call.current

    def _lookup(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        call.current = decoder.opaque()
        if call.current not in self.files:
            raise NfsError(Status.NOENT)

    def _getattr(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        words = decoder.array(Decoder.u32)
        data = self.files.get(call.current or ROOT)
        have = {
            Attribute.TYPE: struct.pack(">I", FileType.DIR if data is None else FileType.REG),
            Attribute.SIZE: struct.pack(">Q", len(data or b"")),
            Attribute.LEASE_TIME: struct.pack(">I", self.lease_s),
            Attribute.MAXREAD: struct.pack(">Q", 65536),
            Attribute.MAXWRITE: struct.pack(">Q", 65536),
        }
        asked = words[0] if words else 0  # What is here has a number below 32.
        have = {one: value for one, value in have.items() if asked >> one & 1}
        out.u32(1, sum(1 << one for one in have))
        out.opaque(b"".join(have.values()))

    def _change(self, out: Encoder) -> None:
        out.boolean(True)
        out.u64(1)
        out.u64(2)

    def _create(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        kind = decoder.u32()
        if kind == FileType.LNK:
            decoder.opaque()
        name = decoder.opaque()
        decoder.array(Decoder.u32)
        decoder.opaque()
        if name in self.files:
            raise NfsError(Status.EXIST)
        self.files[name] = None
        self._change(out)
        out.u32(0)

    def _remove(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        name = decoder.opaque()
        if name not in self.files:
            raise NfsError(Status.NOENT)
        del self.files[name]
        self._change(out)

    def _rename(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        old, new = decoder.opaque(), decoder.opaque()
        if old not in self.files:
            raise NfsError(Status.NOENT)
        self.files[new] = self.files.pop(old)
        self._change(out)
        self._change(out)

    def _readdir(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        cookie = decoder.u64()
        decoder.fixed(8)
        decoder.u32(), decoder.u32()
        decoder.array(Decoder.u32)
        names = sorted(self.files)
        page = names[cookie : cookie + 3]
        out.fixed(b"verifier", 8)
        for place, name in enumerate(page, cookie + 1):
            out.boolean(True)
            out.u64(place)
            out.opaque(name)
            out.u32(0, 0)
        out.boolean(False)
        out.boolean(cookie + 3 >= len(names))

    # State.

    def _open(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        decoder.fixed(12 + 8)
        decoder.opaque()
        how = None
        if decoder.u32():
            how = decoder.u32()
            if how >= 2:
                decoder.fixed(8)
            decoder.array(Decoder.u32)
            decoder.opaque()
        claim = decoder.u32()
        if claim == 0:
            name = decoder.opaque()
            if self.in_grace:
                raise NfsError(Status.GRACE)
            if name not in self.files and how is None:
                raise NfsError(Status.NOENT)
            self.files.setdefault(name, bytearray())
            call.current = name
        elif claim == 1:
            decoder.u32()
            if not self.in_grace:
                raise NfsError(Status.NO_GRACE)
            self.reclaimed.append(Op.OPEN)
        assert call.current is not None
        self._stateid(call.current, out)
        self._change(out)
        out.u32(0, 0, 0)

    def _stateid(self, handle: bytes, out: Encoder) -> None:
        self._serial += 1
        other = struct.pack(">QI", self._serial, self.life)
        self.stateids[other] = handle
        out.u32(1)
        out.fixed(other, 12)

    def _known(self, decoder: Decoder) -> bytes:
        decoder.u32()
        other = decoder.fixed(12)
        if other not in self.stateids:
            raise NfsError(Status.BAD_STATEID)
        return other

    def _close(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        decoder.u32()
        other = self._known(decoder)
        del self.stateids[other]
        out.u32(2)
        out.fixed(other, 12)

    def _lock(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        decoder.u32()
        reclaim, start, length = decoder.boolean(), decoder.u64(), decoder.u64()
        if reclaim != self.in_grace:
            raise NfsError(Status.GRACE if self.in_grace else Status.NO_GRACE)
        if reclaim:
            self.reclaimed.append(Op.LOCK)
        is_first = decoder.boolean()
        if is_first:
            decoder.u32()
        handle = self.stateids[self._known(decoder)]
        if self.conflict is not None:
            body = Encoder()
            body.u64(self.conflict[0])
            body.u64(self.conflict[1])
            body.u32(2)
            body.u64(1)
            body.opaque(self.conflict[2])
            raise NfsError(Status.DENIED, bytes(body))
        self.locks.append((handle, start, length, b""))
        self._stateid(handle, out)

    def _locku(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        decoder.u32(), decoder.u32()
        other = self._known(decoder)
        self.locks = [one for one in self.locks if one[0] != self.stateids[other]]
        out.u32(2)
        out.fixed(other, 12)

    # Data.

    def _read(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        data = self._data(decoder)
        offset, count = decoder.u64(), decoder.u32()
        out.boolean(offset + count >= len(data))
        out.opaque(bytes(data[offset : offset + count]))

    def _write(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        data = self._data(decoder)
        offset, stable, new = decoder.u64(), decoder.u32(), decoder.opaque()
        data += bytes(max(0, offset + len(new) - len(data)))
        data[offset : offset + len(new)] = new
        out.u32(len(new), stable)
        out.fixed(self.write_verifier, 8)

    def _commit(self, call: Call, decoder: Decoder, out: Encoder) -> None:
        decoder.u64(), decoder.u32()
        out.fixed(self.write_verifier, 8)

    def _data(self, decoder: Decoder) -> bytearray:
        data = self.files[self.stateids[self._known(decoder)]]
        assert data is not None
        return data
