# SPDX-License-Identifier: BSD-2-Clause
"""ONC RPC: vectors by hand from RFC 5531, every refusal, round trips, any bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.rpc.message import (
    Accepted,
    AcceptStatus,
    AuthStatus,
    AuthSys,
    BadCall,
    Call,
    Denied,
    OpaqueAuth,
    RejectStatus,
    Reply,
    Served,
    admit,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
    encode_success,
)
from livedma.rpc.xdr import Decoder, XdrError
from livedma.wire import rpc

SERVED: Served = {100003: {3: 22, 4: 2}, 100005: {}}


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def sys_body(machine: bytes = b"host", gids: tuple[int, ...] = (4, 5)) -> bytes:
    padded = machine + bytes(-len(machine) % 4)
    return words(9, len(machine)) + padded + words(1000, 100, len(gids), *gids)


def sys_call(body: bytes, verifier: bytes = words(0, 0)) -> bytes:
    return words(7, 0, 2, 100003, 4, 1, 1, len(body)) + body + verifier


NULL_CALL = words(7, 0, 2, 100003, 4, 0, 0, 0, 0, 0)


def test_a_call_without_credentials() -> None:
    decoder = Decoder(NULL_CALL + b"args")
    assert decode_call(decoder) == Call(7, 100003, 4, 0)
    assert decoder.left == 4
    assert encode_call(Call(7, 100003, 4, 0), b"args") == NULL_CALL + b"args"


def test_a_call_with_auth_sys() -> None:
    data = sys_call(sys_body())
    call = decode_call(Decoder(data))
    assert call == Call(7, 100003, 4, 1, AuthSys(9, b"host", 1000, 100, (4, 5)))
    assert encode_call(call) == data
    longest = AuthSys(0, b"\xff" * 255, 0, 0, tuple(range(16)))
    assert decode_call(Decoder(encode_call(Call(1, 2, 3, 4, longest)))).credential == longest


def test_other_flavours_are_kept() -> None:
    data = words(7, 0, 2, 100003, 4, 1, 6, 400) + bytes(400) + words(6, 4) + b"seal"
    call = decode_call(Decoder(data))
    assert call.credential == OpaqueAuth(6, bytes(400))
    assert call.verifier == OpaqueAuth(6, b"seal")
    assert encode_call(call) == data


MISMATCH = Denied(7, RejectStatus.RPC_MISMATCH, versions=(2, 2))
BAD_CREDENTIAL = Denied(7, RejectStatus.AUTH_ERROR, auth_status=AuthStatus.AUTH_BADCRED)
BAD_VERIFIER = Denied(7, RejectStatus.AUTH_ERROR, auth_status=AuthStatus.AUTH_BADVERF)


@pytest.mark.parametrize(
    ("data", "wrong", "reply"),
    [
        (b"", "bytes end", None),
        (words(7), "bytes end", None),
        (words(7, 1, 0, 0, 0, 0), "message type 1 is no call at byte 4", None),
        (words(7, 2, 2), "message type 2 is no call at byte 4", None),
        (words(7, 0), "bytes end", None),
        (words(7, 0, 1), "RPC version 1 at byte 8", MISMATCH),
        (words(7, 0, 3, 100003), "RPC version 3 at byte 8", MISMATCH),
        (words(7, 0, 2, 100003, 4), "bytes end", None),
        (NULL_CALL[:28], "bytes end", BAD_CREDENTIAL),
        (NULL_CALL[:36], "bytes end", BAD_VERIFIER),
        (words(7, 0, 2, 100003, 4, 1, 6, 401) + bytes(404), "401 is above 400", BAD_CREDENTIAL),
        (NULL_CALL[:32] + words(0, 401) + bytes(404), "401 is above 400", BAD_VERIFIER),
        (sys_call(sys_body(bytes(256))), "256 is above 255 of the", BAD_CREDENTIAL),
        (sys_call(sys_body(gids=(0,) * 17)), "17 is above 16 of the", BAD_CREDENTIAL),
        (sys_call(sys_body()[:-4]), "2 items cannot be in 4 bytes of the", BAD_CREDENTIAL),
        (sys_call(sys_body() + words(0)), "4 bytes too many of the", BAD_CREDENTIAL),
        (sys_call(b""), "4-byte word of the credential at byte 32", BAD_CREDENTIAL),
    ],
)
def test_broken_calls(data: bytes, wrong: str, reply: Reply | None) -> None:
    with pytest.raises(BadCall) as caught:
        decode_call(Decoder(data))
    assert wrong in str(caught.value)
    assert caught.value.reply == reply
    assert admit(data, SERVED) == reply


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (Call(7, 100004, 4, 0), Accepted(7, AcceptStatus.PROG_UNAVAIL)),
        (Call(7, 100005, 3, 0), Accepted(7, AcceptStatus.PROG_UNAVAIL)),
        (Call(7, 100003, 2, 0), Accepted(7, AcceptStatus.PROG_MISMATCH, versions=(3, 4))),
        (Call(7, 100003, 4, 2), Accepted(7, AcceptStatus.PROC_UNAVAIL)),
        (Call(7, 100003, 4, 0, OpaqueAuth(6, b"gss0")), BAD_CREDENTIAL),
        (Call(7, 100004, 4, 0, OpaqueAuth(7)), BAD_CREDENTIAL),
        (Call(7, 100003, 4, 0, AuthSys(0, b"", 0, 0), OpaqueAuth(1)), BAD_VERIFIER),
    ],
)
def test_foreign_calls(call: Call, reply: Reply) -> None:
    assert admit(encode_call(call), SERVED) == reply


@pytest.mark.parametrize(
    "call",
    [
        Call(7, 100003, 4, 1),
        Call(7, 100003, 3, 21, AuthSys(0, b"", 0, 0)),
        # Section 8.1 leaves the bytes of AUTH_NONE undefined.
        Call(7, 100003, 4, 0, OpaqueAuth(0, b"what")),
    ],
)
def test_calls_that_are_served(call: Call) -> None:
    found = admit(encode_call(call, b"args"), SERVED)
    assert isinstance(found, tuple)
    assert found[0] == call
    assert found[1].fixed(4) == b"args" and found[1].left == 0


REPLY_VECTORS: list[tuple[bytes, Reply]] = [
    (words(7, 1, 0, 0, 0, 0), Accepted(7)),
    (words(7, 1, 0, 6, 4) + b"seal" + words(0), Accepted(7, verifier=OpaqueAuth(6, b"seal"))),
    (words(7, 1, 0, 0, 0, 1), Accepted(7, AcceptStatus.PROG_UNAVAIL)),
    (words(7, 1, 0, 0, 0, 2, 3, 4), Accepted(7, AcceptStatus.PROG_MISMATCH, versions=(3, 4))),
    (words(7, 1, 0, 0, 0, 3), Accepted(7, AcceptStatus.PROC_UNAVAIL)),
    (words(7, 1, 0, 0, 0, 4), Accepted(7, AcceptStatus.GARBAGE_ARGS)),
    (words(7, 1, 0, 0, 0, 5), Accepted(7, AcceptStatus.SYSTEM_ERR)),
    (words(7, 1, 1, 0, 2, 2), MISMATCH),
    (words(7, 1, 1, 1, 1), BAD_CREDENTIAL),
    (words(7, 1, 1, 1, 13), Denied(7, RejectStatus.AUTH_ERROR, auth_status=13)),
]


@pytest.mark.parametrize(("data", "reply"), REPLY_VECTORS)
def test_replies(data: bytes, reply: Reply) -> None:
    decoder = Decoder(data)
    assert decode_reply(decoder) == reply
    decoder.finish()
    assert encode_reply(reply) == data


def test_results_follow_success() -> None:
    assert encode_reply(Accepted(7), b"data") == words(7, 1, 0, 0, 0, 0) + b"data"
    assert encode_success(7) == encode_reply(Accepted(7))
    for _, reply in REPLY_VECTORS[2:]:
        with pytest.raises(XdrError, match="results do not go with"):
            encode_reply(reply, b"data")


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        (Accepted(7, AcceptStatus.PROG_MISMATCH), "versions do not go with PROG_MISMATCH"),
        (Accepted(7, versions=(1, 2)), "versions do not go with SUCCESS"),
        (Denied(7, RejectStatus.RPC_MISMATCH), "versions do not go with RPC_MISMATCH"),
        (Denied(7, RejectStatus.AUTH_ERROR), "auth_status does not go with AUTH_ERROR"),
        (Denied(7, RejectStatus.AUTH_ERROR, (2, 2), 1), "versions do not go with AUTH_ERROR"),
        (Denied(7, RejectStatus.RPC_MISMATCH, (2, 2), 1), "auth_status does not go with RPC_MIS"),
        (Accepted(7, verifier=OpaqueAuth(6, bytes(401))), "length 401 is above 400"),
    ],
)
def test_replies_that_cannot_be(reply: Reply, wrong: str) -> None:
    with pytest.raises(XdrError, match=wrong):
        encode_reply(reply)


@pytest.mark.parametrize(
    "credential",
    [AuthSys(0, bytes(256), 0, 0), AuthSys(0, b"", 0, 0, (0,) * 17), OpaqueAuth(6, bytes(401))],
)
def test_credentials_that_cannot_be(credential: AuthSys | OpaqueAuth) -> None:
    with pytest.raises(XdrError, match="is above"):
        encode_call(Call(1, 2, 3, 4, credential))


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (NULL_CALL, "message type 0 is no reply at byte 4"),
        (words(7, 1, 2), "boolean is 0x2 at byte 8"),
        (words(7, 1, 0, 0, 0, 6), "6 is not a valid AcceptStatus at byte 20"),
        (words(7, 1, 1, 2), "2 is not a valid RejectStatus at byte 12"),
        (words(7, 1, 0, 0, 401), "length 401 is above 400 at byte 16"),
        (words(7, 1, 0, 0, 0, 2, 3), "bytes end"),
    ],
)
def test_broken_replies(data: bytes, wrong: str) -> None:
    with pytest.raises(XdrError) as caught:
        decode_reply(Decoder(data))
    assert wrong in str(caught.value)


def test_names_are_those_of_captures() -> None:
    assert [status.name for status in AcceptStatus] == list(rpc.ACCEPT_STATS)
    for status in AuthStatus:
        assert rpc.AUTH_STATS[status] == status.name


WORD = st.integers(0, 0xFFFFFFFF)
AUTHS = st.builds(OpaqueAuth, WORD.filter(lambda flavor: flavor != 1), st.binary(max_size=400))
SYSTEMS = st.builds(
    AuthSys,
    WORD,
    st.binary(max_size=255),
    WORD,
    WORD,
    st.lists(WORD, max_size=16).map(tuple),
)
CALLS = st.builds(Call, WORD, WORD, WORD, WORD, AUTHS | SYSTEMS, AUTHS)
PAIRS = st.tuples(WORD, WORD)
PLAIN = st.sampled_from([status for status in AcceptStatus if status != AcceptStatus.PROG_MISMATCH])
REPLIES = st.one_of(
    st.builds(Accepted, WORD, PLAIN, AUTHS),
    st.builds(Accepted, WORD, st.just(AcceptStatus.PROG_MISMATCH), AUTHS, PAIRS),
    st.builds(Denied, WORD, st.just(RejectStatus.RPC_MISMATCH), PAIRS),
    st.builds(Denied, WORD, st.just(RejectStatus.AUTH_ERROR), auth_status=WORD),
)


@given(CALLS)
def test_calls_survive(call: Call) -> None:
    decoder = Decoder(encode_call(call))
    assert decode_call(decoder) == call
    decoder.finish()


@given(REPLIES)
def test_replies_survive(reply: Reply) -> None:
    decoder = Decoder(encode_reply(reply))
    assert decode_reply(decoder) == reply
    decoder.finish()


# Mostly small words, so that the branches behind the first ones are reached.
BYTES = st.binary(max_size=80) | st.lists(
    st.sampled_from([0, 1, 2, 3, 4, 5, 16, 100003, 0xFFFFFFFF]), max_size=20
).map(lambda values: words(*values))


@given(BYTES)
def test_any_bytes_are_admitted_or_refused(data: bytes) -> None:
    found = admit(data, SERVED)
    if isinstance(found, tuple):
        again = Decoder(encode_call(found[0]))  # the same bytes, but for padding
        assert decode_call(again) == found[0]
        assert again.pos == found[1].pos
    elif found is not None:
        assert encode_reply(found)[:4] == data[:4]


@given(BYTES)
def test_any_bytes_are_a_reply_or_an_error(data: bytes) -> None:
    decoder = Decoder(data)
    try:
        reply = decode_reply(decoder)
    except XdrError:
        return
    again = Decoder(encode_reply(reply))  # the same bytes, but for padding
    assert decode_reply(again) == reply
    assert again.pos == decoder.pos
