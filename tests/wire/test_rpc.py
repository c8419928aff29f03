# SPDX-License-Identifier: BSD-2-Clause
"""XDR, RPC-over-RDMA and RPC headers: vectors by hand, round trips, hostile counts."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rpcrdma_bytes import encode

from livedma.wire import rpc, rpcrdma
from livedma.wire.xdr import Malformed, Reader, Short


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def header(data: bytes) -> tuple[dict[str, Any], int]:
    ret: dict[str, Any] = {}
    reader = Reader(data)
    rpcrdma.decode(reader, ret)
    return ret, reader.left


def message(data: bytes) -> dict[str, Any]:
    ret: dict[str, Any] = {}
    rpc.decode(Reader(data), ret)
    return ret


def test_reader_stops_at_the_end() -> None:
    reader = Reader(bytes.fromhex("00000005 68656c6c6f 000000 00000001 0000"))
    assert (reader.opaque(), reader.boolean(), reader.pos) == (b"hello", True, 16)
    with pytest.raises(Short, match="at byte 16"):
        reader.u32()
    with pytest.raises(Short):
        reader.u64()
    assert (reader.pos, reader.left) == (16, 2)
    for length in (3, 0x7FFFFFFF, 0xFFFFFFFF):
        with pytest.raises(Short):
            Reader(words(length) + b"ab").opaque()
    with pytest.raises(Malformed, match="length 9 is above 8 at byte 0"):
        Reader(words(9) + bytes(12)).opaque(8)
    with pytest.raises(Malformed, match="boolean is 0x2 at byte 0"):
        Reader(words(2)).boolean()
    # The padding belongs to the item: five bytes need eight.
    with pytest.raises(Short):
        Reader(words(5) + b"hello").opaque()


def test_message_with_all_lists() -> None:
    data = words(7, 1, 32, 0)
    data += words(1, 148, 11, 12, 0, 13) + words(1, 148, 14, 15, 1, 0) + words(0)
    data += words(1, 2, 21, 22, 0, 23, 24, 25, 0, 26) + words(1, 0) + words(0)
    data += words(1, 1, 31, 32, 0, 33)
    ret, left = header(data + b"rest")
    assert left == 4
    assert ret == {
        "xid": 7,
        "version": 1,
        "credits": 32,
        "proc": "RDMA_MSG",
        "read_list": [
            {"position": 148, "handle": 11, "length": 12, "offset": 13},
            {"position": 148, "handle": 14, "length": 15, "offset": 1 << 32},
        ],
        "write_list": [
            [
                {"handle": 21, "length": 22, "offset": 23},
                {"handle": 24, "length": 25, "offset": 26},
            ],
            [],
        ],
        "reply_chunk": [{"handle": 31, "length": 32, "offset": 33}],
    }
    assert encode(ret) == data


def test_other_procedures() -> None:
    assert header(words(7, 1, 1, 3)) == (
        {"xid": 7, "version": 1, "credits": 1, "proc": "RDMA_DONE"},
        0,
    )
    ret, left = header(words(7, 1, 1, 2, 64, 512, 0, 0, 0))
    assert (ret["proc"], ret["align"], ret["thresh"], left) == ("RDMA_MSGP", 64, 512, 0)
    ret, _ = header(words(7, 1, 1, 4, 1, 1, 2))
    assert (ret["rdma_error"], ret["low"], ret["high"]) == ("ERR_VERS", 1, 2)
    ret, _ = header(words(7, 1, 1, 4, 2))
    assert ret["rdma_error"] == "ERR_CHUNK"


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (words(7, 2, 1, 0, 0, 0, 0), "RPC-over-RDMA version 2 at byte 4"),
        (words(7, 1, 1, 5), "RPC-over-RDMA procedure 5 at byte 12"),
        (words(7, 1, 1, 4, 3), "RPC-over-RDMA error 3 at byte 16"),
        (words(7, 1, 1, 0, 2), "boolean is 0x2 at byte 16"),
        (words(7, 1, 1, 0, 0, 1, 0xFFFFFFFF), "bytes end inside 16 bytes of data at byte 28"),
    ],
)
def test_wrong_headers(data: bytes, wrong: str) -> None:
    with pytest.raises(Malformed) as caught:
        header(data)
    assert str(caught.value) == wrong


def test_hostile_lists_cost_no_more_than_their_bytes() -> None:
    started = time.process_time()
    empty_chunks = words(7, 1, 1, 0, 0) + words(1, 0) * 8000
    for data in (words(7, 1, 1, 0, 0, 1, 0xFFFFFFFF) + bytes(65536), empty_chunks):
        with pytest.raises(Malformed):
            header(data)
    assert time.process_time() - started < 1


WORD = st.integers(0, 0xFFFFFFFF)
SEGMENT = st.fixed_dictionaries(
    {"handle": WORD, "length": WORD, "offset": st.integers(0, (1 << 64) - 1)}
)
READ = st.builds(lambda position, rest: {"position": position, **rest}, WORD, SEGMENT)
CHUNK = st.lists(SEGMENT, max_size=4)
BASE = {"xid": WORD, "version": st.just(1), "credits": WORD}
LISTS = {"read_list": st.lists(READ, max_size=4), "write_list": st.lists(CHUNK, max_size=4)}
HEADERS = st.one_of(
    st.fixed_dictionaries(
        {**BASE, "proc": st.sampled_from(["RDMA_MSG", "RDMA_NOMSG"]), **LISTS},
        optional={"reply_chunk": CHUNK},
    ),
    st.fixed_dictionaries(
        {**BASE, "proc": st.just("RDMA_MSGP"), "align": WORD, "thresh": WORD, **LISTS}
    ),
    st.fixed_dictionaries(
        {
            **BASE,
            "proc": st.just("RDMA_ERROR"),
            "rdma_error": st.just("ERR_VERS"),
            "low": WORD,
            "high": WORD,
        }
    ),
)


@given(HEADERS)
def test_headers_survive_encoding(wanted: dict[str, Any]) -> None:
    assert header(encode(wanted)) == (wanted, 0)


def test_call_with_auth_sys() -> None:
    cred = words(0, 4) + b"host" + words(1000, 100, 1, 100)
    data = words(7, 0, 2, 100003, 3, 6, 1, len(cred)) + cred + words(0, 0)
    assert message(data) == {
        "xid": 7,
        "type": "call",
        "rpcvers": 2,
        "program": 100003,
        "program_name": "NFS",
        "version": 3,
        "procedure": 6,
        "procedure_name": "READ",
        "cred": {"flavor": "AUTH_SYS", "machine": "host", "uid": 1000, "gid": 100},
    }


def test_call_with_gss() -> None:
    cred = words(1, 0, 5, 3, 4) + b"hand"
    ret = message(words(7, 0, 2, 100003, 4, 1, 6, len(cred)) + cred + words(6, 0))
    assert ret["cred"] == {"flavor": "RPCSEC_GSS", "gss_proc": "DATA", "service": "privacy"}


def test_credential_that_contradicts_its_length() -> None:
    with pytest.raises(Malformed) as caught:
        message(words(7, 0, 2, 100003, 3, 6, 1, 8, 0, 99, 0, 0))
    assert not isinstance(caught.value, Short)
    assert str(caught.value) == "bytes end inside 99 bytes of data of the credential at byte 40"


def test_names_of_procedures() -> None:
    assert rpc.procedure_name(rpc.NFS, 3, 21) == "COMMIT"
    assert rpc.procedure_name(rpc.NFS, 2, 17) == "STATFS"
    assert rpc.procedure_name(rpc.NLM, 4, 23) == "FREE_ALL"
    assert rpc.procedure_name(rpc.NLM, 4, 16) == "16"
    assert rpc.procedure_name(rpc.NFS_CALLBACK, 4, 1) == "CB_COMPOUND"
    assert rpc.procedure_name(123, 1, 0) == "NULL"
    assert rpc.procedure_name(123, 1, 1) == "1"


def test_replies() -> None:
    ret = message(words(7, 1, 0, 0, 0, 2, 3, 4))
    assert (ret["reply_stat"], ret["accept_stat"]) == ("accepted", "PROG_MISMATCH")
    assert (ret["low"], ret["high"]) == (3, 4)
    ret = message(words(7, 1, 1, 1, 5))
    assert (ret["reply_stat"], ret["reject_stat"]) == ("denied", "AUTH_ERROR")
    assert ret["auth_stat"] == "AUTH_TOOWEAK"
    ret = message(words(7, 1, 1, 0, 2, 2))
    assert (ret["reject_stat"], ret["low"], ret["high"]) == ("RPC_MISMATCH", 2, 2)


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (words(7, 2), "RPC message type 2 at byte 4"),
        (words(7, 0, 3), "RPC version 3 at byte 8"),
        (words(7, 1, 2), "RPC reply status 2 at byte 8"),
        (words(7, 1, 1, 2), "RPC reject status 2 at byte 12"),
        (words(7, 1, 0, 0, 0, 6), "RPC accept status 6 at byte 20"),
        (words(7, 0, 2, 1, 1, 1, 0, 401), "length 401 is above 400 at byte 28"),
    ],
)
def test_wrong_messages(data: bytes, wrong: str) -> None:
    with pytest.raises(Malformed) as caught:
        message(data)
    assert str(caught.value) == wrong
