# SPDX-License-Identifier: BSD-2-Clause
"""Makes the MADs that the connection manager sends, with the field values that Linux gives them.

`livedma.wire.cm` knows their form on the wire. This module knows their contents, and the seconds
that the codes in them mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from livedma.wire import cm, private

if TYPE_CHECKING:
    from livedma.rdma.cm.connection import Connection

# Bytes of private data that are the user's.
REQ_PRIVATE = cm.PRIVATE_BYTES["REQ"] - private.IP_HEADER_BYTES
SIDR_REQ_PRIVATE = cm.PRIVATE_BYTES["SIDR_REQ"] - private.IP_HEADER_BYTES

# Reasons of a REJ (IBA table 108) that are used here.
NO_RESOURCES = 3
TIMEOUT = 4
UNSUPPORTED_REQUEST = 5
INVALID_COMMUNICATION_ID = 6
INVALID_SERVICE_ID = 8
INVALID_TRANSPORT = 9
STALE_CONNECTION = 10
INVALID_PATH_MTU = 26
CONSUMER_REJECT = 28

# Status of a SIDR REP (IBA table 120) in the words of `livedma.wire.cm`.
SIDR_VALID = "valid"
SIDR_UNSUPPORTED = "unsupported service ID"
SIDR_REJECTED = "rejected"

Message = dict[str, Any]

_MAD_START = bytes((1, cm.CM_CLASS, 2, 3))  # base version, class, class version, method Send
_LID_NONE = 0xFFFF
_PKEY = 0xFFFF
_HOP_LIMIT = 64


@dataclass(frozen=True)
class Timing:
    """Holds the times that this side waits, with Linux's values for RoCE. A code n is 4.096 us *
    2**n."""

    packet_lifetime: int = 16
    response_timeout: int = 20
    max_retries: int = 15
    service_timeout: int = 24  # asked for in an MRA
    ack_delay: int = 15

    @property
    def request_seconds(self) -> float:
        """Seconds until a request is repeated: the peer's time to answer, and the round trip."""
        return seconds(self.response_timeout) + 2 * seconds(self.packet_lifetime)


def seconds(code: int) -> float:
    return 4.096e-6 * (1 << code)


def ack_timeout(ack_delay: int, packet_lifetime: int) -> int:
    """Returns the code of about 2 * packet lifetime + ACK delay, rounded as Linux does."""
    there_and_back = packet_lifetime + 1
    if there_and_back >= ack_delay:
        return min(31, there_and_back + (ack_delay >= there_and_back - 1))
    return min(31, ack_delay + (there_and_back >= ack_delay - 1))


def parse(mad: bytes) -> Message | None:
    """Returns the fields of a CM message; None for another or a malformed message."""
    if not mad.startswith(_MAD_START):
        return None
    message: Message | None = cm.decode(mad).get("cm")
    if message is None or "error" in message or "mad_status" in message:
        return None
    return message


def check_private_data(attribute: str, data: bytes) -> None:
    """Raises ValueError if the data does not fit a message that is sent later."""
    if len(data) > cm.PRIVATE_BYTES[attribute]:
        raise ValueError(
            f"{len(data)} bytes of private data: {attribute} has {cm.PRIVATE_BYTES[attribute]}"
        )


def private_data(message: Message) -> bytes:
    """Returns the user's private data, padded with zeros: a message does not carry its length."""
    return bytes.fromhex(message["private_data"])


def _message(connection: Connection, attribute: str, data: bytes, **fields: Any) -> bytes:
    return cm.encode(
        {
            "attribute": attribute,
            "transaction_id": connection.transaction_id,
            "local_comm_id": connection.local_id,
            "remote_comm_id": connection.remote_id,
            "private_data": data.hex(),
            **fields,
        }
    )


def req(
    connection: Connection,
    *,
    address: str,
    source_port: int,
    guid: int,
    timing: Timing,
    data: bytes,
) -> bytes:
    return _message(
        connection,
        "REQ",
        data,
        service_id=private.service_id(connection.port, "TCP"),
        ca_guid=guid,
        qpn=connection.qpn,
        responder_resources=connection.responder_resources,
        initiator_depth=connection.initiator_depth,
        remote_cm_response_timeout=timing.response_timeout,
        local_cm_response_timeout=timing.response_timeout,
        max_cm_retries=timing.max_retries,
        transport=connection.transport,
        flow_control=int(connection.flow_control),
        starting_psn=connection.rq_psn,
        retry_count=connection.retry_count,
        rnr_retry_count=connection.rnr_retry_count,
        pkey=_PKEY,
        path_mtu=connection.path_mtu,
        srq=int(connection.srq),
        primary_local_lid=_LID_NONE,
        primary_remote_lid=_LID_NONE,
        primary_local_gid=address,
        primary_remote_gid=connection.peer,
        primary_flow_label=connection.flow_label,
        primary_hop_limit=_HOP_LIMIT,
        primary_ack_timeout=ack_timeout(timing.ack_delay, timing.packet_lifetime),
        ip_cm={"src": address, "dst": connection.peer, "src_port": source_port},
    )


def rep(
    connection: Connection, *, guid: int, rnr_retry_count: int, ack_delay: int, data: bytes
) -> bytes:
    return _message(
        connection,
        "REP",
        data,
        qpn=connection.qpn,
        starting_psn=connection.rq_psn,
        responder_resources=connection.responder_resources,
        initiator_depth=connection.initiator_depth,
        target_ack_delay=ack_delay,
        flow_control=int(connection.flow_control),
        rnr_retry_count=rnr_retry_count,
        srq=int(connection.srq),
        ca_guid=guid,
    )


def rtu(connection: Connection, data: bytes) -> bytes:
    return _message(connection, "RTU", data)


def mra(connection: Connection, answers: str, service_timeout: int) -> bytes:
    return _message(connection, "MRA", b"", message=answers, service_timeout=service_timeout)


def rej(
    connection: Connection, rejects: str, reason: int, info: bytes = b"", data: bytes = b""
) -> bytes:
    # Linux does not show the ID of a request that it rejects unless an MRA has shown it already.
    is_hidden = rejects == "REQ" and connection.mra is None
    return _message(
        connection,
        "REJ",
        data,
        local_comm_id=0 if is_hidden else connection.local_id,
        message=rejects,
        reason=reason,
        reject_info_length=len(info),
        additional_info=info.hex(),
    )


def rej_of(message: Message, reason: int, info: bytes = b"") -> bytes:
    """Returns the REJ of a message that belongs to no connection."""
    return cm.encode(
        {
            "attribute": "REJ",
            "transaction_id": message["transaction_id"],
            "local_comm_id": message.get("remote_comm_id", 0),
            "remote_comm_id": message["local_comm_id"],
            "message": message["attribute"],
            "reason": reason,
            "reject_info_length": len(info),
            "additional_info": info.hex(),
        }
    )


def dreq(connection: Connection, data: bytes) -> bytes:
    return _message(connection, "DREQ", data, remote_qpn=connection.remote_qpn)


def drep_to(message: Message, data: bytes = b"") -> bytes:
    """Returns the DREP that answers a DREQ, whether or not the connection is known."""
    return cm.encode(
        {
            "attribute": "DREP",
            "transaction_id": message["transaction_id"],
            "local_comm_id": message["remote_comm_id"],
            "remote_comm_id": message["local_comm_id"],
            "private_data": data.hex(),
        }
    )


def sidr_req(
    *,
    transaction_id: int,
    request_id: int,
    address: str,
    peer: str,
    port: int,
    source_port: int,
    data: bytes,
) -> bytes:
    return cm.encode(
        {
            "attribute": "SIDR_REQ",
            "transaction_id": transaction_id,
            "request_id": request_id,
            "pkey": _PKEY,
            "service_id": private.service_id(port, "UDP"),
            "ip_cm": {"src": address, "dst": peer, "src_port": source_port},
            "private_data": data.hex(),
        }
    )


def sidr_rep_to(
    message: Message, status: str, *, qpn: int = 0, qkey: int = 0, data: bytes = b""
) -> bytes:
    return cm.encode(
        {
            "attribute": "SIDR_REP",
            "transaction_id": message["transaction_id"],
            "request_id": message["request_id"],
            "status": status,
            "qpn": qpn,
            "service_id": message["service_id"],
            "qkey": qkey,
            "private_data": data.hex(),
        }
    )
