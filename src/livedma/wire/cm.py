# SPDX-License-Identifier: BSD-2-Clause
"""Reads and writes InfiniBand communication management (IBA volume 1, chapter 12): MADs to QP 1.

One table per message gives each field's place; decoding and encoding both walk it. Numbers are
as on the wire: a `*_timeout`, `service_timeout` or `target_ack_delay` n means 4.096 us * 2**n.
There are exceptions:

* `path_mtu` is in bytes (0 if the code has no meaning).
* GIDs are text (an IPv4 address if v4-mapped), and 64-bit identifiers are hex strings.
* Codes with names are those names (the number in decimal where there is none).
* Fields of the alternate path and `additional_info` are left out when 0.
* `private_data` is hex and starts behind the IP CM header if there is one.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

from livedma.wire import private
from livedma.wire.xdr import Malformed, Short

CM_CLASS = 0x07
MAD_BYTES = 256
_HEADER = struct.Struct(">BBBBHHQHHI")
_BODY_BYTES = MAD_BYTES - _HEADER.size
_BODY_BITS = 8 * _BODY_BYTES

ATTRIBUTES = {
    0x10: "REQ",
    0x11: "MRA",
    0x12: "REJ",
    0x13: "REP",
    0x14: "RTU",
    0x15: "DREQ",
    0x16: "DREP",
    0x17: "SIDR_REQ",
    0x18: "SIDR_REP",
    0x19: "LAP",
    0x1A: "APR",
}
_ATTRIBUTE_IDS = {name: number for number, name in ATTRIBUTES.items()}

# name: (first byte of the body, first bit in it counted from the highest, bits)
Fields = dict[str, tuple[int, int, int]]


def _path(prefix: str, at: int) -> Fields:
    return {
        f"{prefix}_local_lid": (at, 0, 16),
        f"{prefix}_remote_lid": (at + 2, 0, 16),
        f"{prefix}_local_gid": (at + 4, 0, 128),
        f"{prefix}_remote_gid": (at + 20, 0, 128),
        f"{prefix}_flow_label": (at + 36, 0, 20),
        f"{prefix}_packet_rate": (at + 39, 2, 6),
        f"{prefix}_traffic_class": (at + 40, 0, 8),
        f"{prefix}_hop_limit": (at + 41, 0, 8),
        f"{prefix}_sl": (at + 42, 0, 4),
        f"{prefix}_subnet_local": (at + 42, 4, 1),
        f"{prefix}_ack_timeout": (at + 43, 0, 5),
    }


_IDS: Fields = {"local_comm_id": (0, 0, 32), "remote_comm_id": (4, 0, 32)}
_FIELDS: dict[str, Fields] = {
    "REQ": {
        "local_comm_id": (0, 0, 32),
        "service_id": (8, 0, 64),
        "ca_guid": (16, 0, 64),
        "qkey": (28, 0, 32),
        "qpn": (32, 0, 24),
        "responder_resources": (35, 0, 8),
        "eecn": (36, 0, 24),
        "initiator_depth": (39, 0, 8),
        "remote_eecn": (40, 0, 24),
        "remote_cm_response_timeout": (43, 0, 5),
        "transport": (43, 5, 2),
        "flow_control": (43, 7, 1),
        "starting_psn": (44, 0, 24),
        "local_cm_response_timeout": (47, 0, 5),
        "retry_count": (47, 5, 3),
        "pkey": (48, 0, 16),
        "path_mtu": (50, 0, 4),
        "rdc_exists": (50, 4, 1),
        "rnr_retry_count": (50, 5, 3),
        "max_cm_retries": (51, 0, 4),
        "srq": (51, 4, 1),
        "extended_transport": (51, 5, 3),
        **_path("primary", 52),
        **_path("alternate", 96),
    },
    "MRA": {**_IDS, "message": (8, 0, 2), "service_timeout": (9, 0, 5)},
    "REJ": {
        **_IDS,
        "message": (8, 0, 2),
        "reject_info_length": (9, 0, 7),
        "reason": (10, 0, 16),
        "additional_info": (12, 0, 576),
    },
    "REP": {
        **_IDS,
        "qkey": (8, 0, 32),
        "qpn": (12, 0, 24),
        "eecn": (16, 0, 24),
        "starting_psn": (20, 0, 24),
        "responder_resources": (24, 0, 8),
        "initiator_depth": (25, 0, 8),
        "target_ack_delay": (26, 0, 5),
        "failover": (26, 5, 2),
        "flow_control": (26, 7, 1),
        "rnr_retry_count": (27, 0, 3),
        "srq": (27, 3, 1),
        "ca_guid": (28, 0, 64),
    },
    "RTU": _IDS,
    "DREQ": {**_IDS, "remote_qpn": (8, 0, 24)},
    "DREP": _IDS,
    "SIDR_REQ": {"request_id": (0, 0, 32), "pkey": (4, 0, 16), "service_id": (8, 0, 64)},
    "SIDR_REP": {
        "request_id": (0, 0, 32),
        "status": (4, 0, 8),
        "additional_info_length": (5, 0, 8),
        "qpn": (8, 0, 24),
        "service_id": (12, 0, 64),
        "qkey": (20, 0, 32),
        "additional_info": (24, 0, 576),
    },
    "LAP": {
        **_IDS,
        "remote_qpn": (12, 0, 24),
        "remote_cm_response_timeout": (15, 0, 5),
        "alternate_local_lid": (20, 0, 16),
        "alternate_remote_lid": (22, 0, 16),
        "alternate_local_gid": (24, 0, 128),
        "alternate_remote_gid": (40, 0, 128),
        "alternate_flow_label": (56, 0, 20),
        "alternate_traffic_class": (59, 0, 8),
        "alternate_hop_limit": (60, 0, 8),
        "alternate_packet_rate": (61, 2, 6),
        "alternate_sl": (62, 0, 4),
        "alternate_subnet_local": (62, 4, 1),
        "alternate_ack_timeout": (63, 0, 5),
    },
    "APR": {
        **_IDS,
        "additional_info_length": (8, 0, 8),
        "status": (9, 0, 8),
        "additional_info": (12, 0, 576),
    },
}
# Where private data starts; it goes on to the end of the MAD.
_PRIVATE = {
    "REQ": 140,
    "MRA": 10,
    "REJ": 84,
    "REP": 36,
    "RTU": 8,
    "DREQ": 12,
    "DREP": 8,
    "SIDR_REQ": 16,
    "SIDR_REP": 96,
    "LAP": 64,
    "APR": 84,
}
PRIVATE_BYTES = {name: _BODY_BYTES - at for name, at in _PRIVATE.items()}

_REASONS = (
    "no QP available|no EEC available|no resources available|timeout|unsupported request|"
    "invalid communication ID|invalid communication instance|invalid service ID|"
    "invalid transport service type|stale connection|RDC does not exist|"
    "primary remote GID rejected|primary remote LID rejected|invalid primary SL|"
    "invalid primary traffic class|invalid primary hop limit|invalid primary packet rate|"
    "alternate remote GID rejected|alternate remote LID rejected|invalid alternate SL|"
    "invalid alternate traffic class|invalid alternate hop limit|"
    "invalid alternate packet rate|port and CM redirection|port redirection|"
    "invalid path MTU|insufficient responder resources|consumer reject|"
    "RNR retry count reject|duplicate local communication ID|invalid class version|"
    "invalid flow label|invalid alternate flow label"
)
REASONS = dict(enumerate(_REASONS.split("|"), 1))
REASONS[35] = "vendor option not supported"
_APR_STATUS = (
    "success|invalid communication ID|unsupported|rejected|redirected|is current path|"
    "invalid QPN or EECN|invalid LID|invalid GID|invalid flow label|"
    "invalid traffic class|invalid hop limit|invalid packet rate|invalid SL"
)
_SIDR_STATUS = (
    "valid|unsupported service ID|rejected|no QP available|redirected|unsupported version"
)
_NAMES: dict[tuple[str, str], dict[int, str]] = {
    ("REQ", "transport"): {0: "RC", 1: "UC", 2: "RD", 3: "extended"},
    ("MRA", "message"): {0: "REQ", 1: "REP", 2: "LAP"},
    ("REJ", "message"): {0: "REQ", 1: "REP", 2: "other"},
    ("APR", "status"): dict(enumerate(_APR_STATUS.split("|"))),
    ("SIDR_REP", "status"): dict(enumerate(_SIDR_STATUS.split("|"))),
}
_WIDE = {"service_id", "ca_guid"}
# Left out when 0, as in nearly all messages: a second path and additional information are rare.
_SELDOM = {"additional_info", *_path("alternate", 0)}


def decode(payload: bytes, port: int | None = None) -> dict[str, dict[str, Any]]:
    """Returns what a MAD says: {"cm": ...}, or {"mad": ...} if it is none of the CM messages.

    `port` is the service's port if another message of the connection has told it (a REP or REJ
    does not): it decides how private data is read. Never raises; the result of a MAD that is too
    short has an `error`.
    """
    if _HEADER.size > len(payload):
        return {"mad": {"error": f"MAD header ends at byte {len(payload)} of {_HEADER.size}"}}
    _, mad_class, _, method, status, _, tid, attribute, _, _ = _HEADER.unpack_from(payload)
    if mad_class != CM_CLASS or attribute not in ATTRIBUTES:
        return {"mad": {"class": mad_class, "method": method, "attribute": attribute}}
    ret: dict[str, Any] = {
        "attribute": ATTRIBUTES[attribute],
        "attribute_id": attribute,
        "transaction_id": f"{tid:#018x}",
    }
    if status:
        ret["mad_status"] = status
    try:
        _body(payload, ret, port)
    except Malformed as wrong:
        ret["error"] = str(wrong)
    return {"cm": ret}


def _body(payload: bytes, ret: dict[str, Any], port: int | None) -> None:
    name = ret["attribute"]
    if MAD_BYTES > len(payload):
        raise Short("CM message ends", len(payload))
    body = payload[_HEADER.size : MAD_BYTES]
    bits = int.from_bytes(body, "big")
    for field, (byte, bit, width) in _FIELDS[name].items():
        value = bits >> (_BODY_BITS - 8 * byte - bit - width) & ((1 << width) - 1)
        if field in _SELDOM and not value:
            continue
        ret[field] = _show(name, field, value)
    if name == "REJ":
        ret["reason_name"] = REASONS.get(ret["reason"], str(ret["reason"]))
    data = body[_PRIVATE[name] :]
    ret["private_data"] = data.hex()
    at = _HEADER.size + _PRIVATE[name]
    if "service_id" in ret:
        service = private.service(int(ret["service_id"], 16))
        ret.update(service)
        port = service.get("port", port)
        if name in ("REQ", "SIDR_REQ") and private.has_ip_header(int(ret["service_id"], 16)):
            ret["ip_cm"], data = private.ip_header(data, at)
            ret["private_data"] = data.hex()
    ret.update(private.consumer(name, data, port))


def _show(message: str, field: str, value: int) -> int | str:
    if field.endswith("_gid"):
        return _gid(value)
    if field in _WIDE:
        return f"{value:#018x}"
    if field == "additional_info":
        return value.to_bytes(72, "big").hex()
    if field == "path_mtu":
        return 128 << value if 1 <= value <= 5 else 0
    names = _NAMES.get((message, field))
    return value if names is None else names.get(value, str(value))


def _gid(value: int) -> str:
    address = ipaddress.IPv6Address(value)
    return str(address.ipv4_mapped or address)


def encode(message: dict[str, Any]) -> bytes:
    """Returns the 256 bytes of a MAD given as `decode` shows it under "cm"; the inverse of
    `decode`.

    `attribute` must be there; other fields default to 0. Derived keys (`attribute_id`, `port`,
    `port_space`, `reason_name`, decoded private data) are not read: `service_id` and
    `private_data` count instead, and `ip_cm` is put in front of `private_data`. Raises `ValueError`
    for what does not fit.
    """
    name = message["attribute"]
    if name not in _ATTRIBUTE_IDS:
        raise ValueError(f"no CM message is called {name!r}")
    bits = 0
    for field, (byte, bit, width) in _FIELDS[name].items():
        value = _number(name, field, message.get(field, 0))
        if value < 0 or value >> width:
            raise ValueError(f"{field} {value:#x} does not fit {width} bits")
        bits |= value << (_BODY_BITS - 8 * byte - bit - width)
    data = bytes.fromhex(message.get("private_data", ""))
    if "ip_cm" in message:
        data = private.pack_ip_header(message["ip_cm"]) + data
    if len(data) > PRIVATE_BYTES[name]:
        raise ValueError(f"{len(data)} bytes of private data: {name} has {PRIVATE_BYTES[name]}")
    tid = _number(name, "transaction_id", message.get("transaction_id", 0))
    head = _HEADER.pack(
        1, CM_CLASS, 2, 3, message.get("mad_status", 0), 0, tid, _ATTRIBUTE_IDS[name], 0, 0
    )
    body = bits.to_bytes(_BODY_BYTES, "big")
    return head + body[: _PRIVATE[name]] + data.ljust(PRIVATE_BYTES[name], b"\0")


def _number(message: str, field: str, value: int | str) -> int:
    if field == "path_mtu":
        if value and value not in (256, 512, 1024, 2048, 4096):
            raise ValueError(f"path_mtu {value} is no InfiniBand MTU")
        return int(value).bit_length() - 8 if value else 0
    if isinstance(value, int):
        return value
    if field.endswith("_gid"):
        address = ipaddress.ip_address(value)
        mapped = 0xFFFF << 32 if address.version == 4 else 0
        return int(address) | mapped
    if field == "additional_info":
        return int.from_bytes(bytes.fromhex(value).ljust(72, b"\0"), "big")
    names = _NAMES.get((message, field), {})
    numbers = {text: number for number, text in names.items()}
    return numbers[value] if value in numbers else int(value, 0)
