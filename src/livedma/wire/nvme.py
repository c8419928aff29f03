# SPDX-License-Identifier: BSD-2-Clause
"""Reads NVMe over Fabrics capsules (NVMe base specification, RDMA transport specification).

`command` reads a submission queue entry: `type` "command", `opcode`, `opcode_name`, `queue`
("fabrics", "admin" or "io"), `command_id`, `nsid`, `sgl` {`type`, `address` or in-capsule
`offset`, `length`, `key`} and, by opcode, `slba` and `nlb` (blocks, counted from 1), `fctype`,
`qid`, `offset`, `value`, `log`, `cns`, `feature`. `response` reads a completion queue entry:
`type` "response", `command_id`, `sqhd`, `sqid`, `result`, `status_code_type`, `status_code`,
`status`.
"""

from __future__ import annotations

import struct
from typing import Any

from livedma.wire.xdr import Short

COMMAND_BYTES = 64
RESPONSE_BYTES = 16
FABRICS = 0x7F

ADMIN = {
    0x00: "Delete I/O SQ",
    0x01: "Create I/O SQ",
    0x02: "Get Log Page",
    0x04: "Delete I/O CQ",
    0x05: "Create I/O CQ",
    0x06: "Identify",
    0x08: "Abort",
    0x09: "Set Features",
    0x0A: "Get Features",
    0x0C: "Async Event Request",
    0x0D: "Namespace Management",
    0x10: "Firmware Commit",
    0x11: "Firmware Image Download",
    0x14: "Device Self-test",
    0x15: "Namespace Attachment",
    0x18: "Keep Alive",
    0x19: "Directive Send",
    0x1A: "Directive Receive",
    0x1C: "Virtualization Management",
    0x1D: "NVMe-MI Send",
    0x1E: "NVMe-MI Receive",
    0x20: "Capacity Management",
    0x24: "Lockdown",
    0x7C: "Doorbell Buffer Config",
    0x80: "Format NVM",
    0x81: "Security Send",
    0x82: "Security Receive",
    0x84: "Sanitize",
    0x86: "Get LBA Status",
}
IO = {
    0x00: "Flush",
    0x01: "Write",
    0x02: "Read",
    0x04: "Write Uncorrectable",
    0x05: "Compare",
    0x08: "Write Zeroes",
    0x09: "Dataset Management",
    0x0C: "Verify",
    0x0D: "Reservation Register",
    0x0E: "Reservation Report",
    0x11: "Reservation Acquire",
    0x12: "I/O Management Receive",
    0x15: "Reservation Release",
    0x18: "Cancel",
    0x19: "Copy",
    0x1D: "I/O Management Send",
    0x79: "Zone Management Send",
    0x7A: "Zone Management Receive",
    0x7D: "Zone Append",
}
FCTYPES = {
    0x00: "Property Set",
    0x01: "Connect",
    0x04: "Property Get",
    0x05: "Authentication Send",
    0x06: "Authentication Receive",
    0x08: "Disconnect",
}
SGL_TYPES = {
    0x0: "data block",
    0x1: "bit bucket",
    0x2: "segment",
    0x3: "last segment",
    0x4: "keyed data block",
    0x5: "transport data block",
}
_STATUS = {
    (0, 0x00): "Success",
    (0, 0x01): "Invalid Command Opcode",
    (0, 0x02): "Invalid Field in Command",
    (0, 0x03): "Command ID Conflict",
    (0, 0x04): "Data Transfer Error",
    (0, 0x05): "Aborted: Power Loss",
    (0, 0x06): "Internal Error",
    (0, 0x07): "Abort Requested",
    (0, 0x08): "Aborted: SQ Deletion",
    (0, 0x0B): "Invalid Namespace or Format",
    (0, 0x0C): "Command Sequence Error",
    (0, 0x0D): "Invalid SGL Segment Descriptor",
    (0, 0x0E): "Invalid Number of SGL Descriptors",
    (0, 0x0F): "Data SGL Length Invalid",
    (0, 0x11): "SGL Descriptor Type Invalid",
    (0, 0x16): "SGL Offset Invalid",
    (0, 0x18): "Host Identifier Inconsistent Format",
    (0, 0x19): "Keep Alive Timer Expired",
    (0, 0x80): "LBA Out of Range",
    (0, 0x81): "Capacity Exceeded",
    (0, 0x82): "Namespace Not Ready",
    (0, 0x83): "Reservation Conflict",
    (1, 0x05): "Async Event Request Limit Exceeded",
    (1, 0x09): "Invalid Log Page",
    (1, 0x0D): "Feature Identifier Not Saveable",
    (1, 0x80): "Incompatible Format",
    (1, 0x81): "Controller Busy",
    (1, 0x82): "Connect Invalid Parameters",
    (1, 0x83): "Connect Restart Discovery",
    (1, 0x84): "Connect Invalid Host",
    (1, 0x90): "Discovery Restart",
    (1, 0x91): "Authentication Required",
    (2, 0x80): "Write Fault",
    (2, 0x81): "Unrecovered Read Error",
    (2, 0x86): "Access Denied",
    (3, 0x01): "Asymmetric Access Persistent Loss",
    (3, 0x02): "Asymmetric Access Inaccessible",
    (3, 0x03): "Asymmetric Access Transition",
    (3, 0x70): "Host Pathing Error",
}
# Opcodes of commands that move blocks: slba in dwords 10 and 11, blocks - 1 in dword 12.
_BLOCK_OPCODES = {0x01, 0x02, 0x04, 0x05, 0x08, 0x0C, 0x7D}


def is_io(opcode: int, nsid: int) -> bool:
    """Guesses whether a command is an I/O command, for a queue whose Connect was not captured.

    Admin commands that manage queues are not allowed over fabrics, so opcodes 0, 1, 4, 5 are
    I/O. Where an opcode has a meaning in both sets, an I/O command names one namespace, while
    those of the admin commands that are in use name none or all.
    """
    if opcode in (0x00, 0x01, 0x04, 0x05):
        return True
    if opcode in IO and opcode in ADMIN:
        return 0 < nsid < 0xFFFFFFFF
    return opcode in IO


def looks_like_command(data: bytes, is_whole: bool) -> bool:
    """Returns whether `data` may be a command capsule: False for nearly everything that is none.

    `is_whole` says that the message has no further packets.
    """
    if COMMAND_BYTES > len(data) or data[1] & 0xFC != 0x40 or any(data[16:24]):
        return False
    kind = data[39]
    length = int.from_bytes(data[32:36], "little")
    if kind in (0x40, 0x4F):
        if is_whole and len(data) != COMMAND_BYTES:
            return False
    elif kind != 0x01 or (is_whole and len(data) - COMMAND_BYTES < length):
        return False
    opcode = data[0]
    if opcode == FABRICS:
        return data[4] in FCTYPES
    return opcode in ADMIN or opcode in IO


def command(data: bytes, ret: dict[str, Any], is_io_queue: bool | None = None) -> None:
    """Reads a command capsule into `ret`. `is_io_queue` is None if the kind of queue is unknown.

    Raises `Short` if there are fewer than 64 bytes.
    """
    ret["type"] = "command"
    if COMMAND_BYTES > len(data):
        raise Short("command capsule ends", len(data))
    opcode, flags, cid, nsid = struct.unpack_from("<BBHI", data)
    ret["opcode"] = opcode
    dword10, dword11, dword12 = struct.unpack_from("<III", data, 40)
    if opcode == FABRICS:
        name, queue = FCTYPES.get(data[4], f"fabrics {data[4]:#04x}"), "fabrics"
    else:
        if is_io_queue is None:
            is_io_queue = is_io(opcode, nsid)
        names, queue = (IO, "io") if is_io_queue else (ADMIN, "admin")
        name = names.get(opcode, f"{queue} {opcode:#04x}")
    ret["opcode_name"] = name
    ret["queue"] = queue
    ret["command_id"] = cid
    if flags & 3:
        ret["fused"] = flags & 3
    if queue == "fabrics":
        ret["fctype"] = data[4]
        _fabrics(data, ret)
    else:
        ret["nsid"] = nsid
    if queue == "io" and opcode in _BLOCK_OPCODES:
        ret["slba"] = dword10 | dword11 << 32
        ret["nlb"] = (dword12 & 0xFFFF) + 1
    elif queue == "admin" and opcode in (0x02, 0x06):
        ret["log" if opcode == 0x02 else "cns"] = dword10 & 0xFF
    elif queue == "admin" and opcode in (0x09, 0x0A):
        ret["feature"] = dword10 & 0xFF
    ret["sgl"] = _sgl(data)


def _fabrics(data: bytes, ret: dict[str, Any]) -> None:
    if data[4] == 0x01:
        ret["qid"], ret["sq_size"] = struct.unpack_from("<HH", data, 42)
        if data[39] == 0x01 and len(data) >= COMMAND_BYTES + 768:
            for key, at in (("subsystem_nqn", 256), ("host_nqn", 512)):
                raw = data[COMMAND_BYTES + at : COMMAND_BYTES + at + 256]
                ret[key] = raw.split(b"\0")[0].decode("utf-8", "backslashreplace")
    elif data[4] in (0x00, 0x04):
        ret["offset"] = struct.unpack_from("<I", data, 44)[0]
        if data[4] == 0x00:
            ret["value"] = struct.unpack_from("<Q", data, 48)[0]


def _sgl(data: bytes) -> dict[str, Any]:
    kind, sub = data[39] >> 4, data[39] & 15
    ret: dict[str, Any] = {"type": SGL_TYPES.get(kind, str(kind))}
    address = int.from_bytes(data[24:32], "little")
    # Sub type 1: the data is in the capsule, and the address counts from the command's end.
    ret["offset" if sub == 1 else "address"] = address
    if kind == 4:
        ret["length"] = int.from_bytes(data[32:35], "little")
        ret["key"] = int.from_bytes(data[35:39], "little")
        if sub == 0xF:
            ret["invalidate"] = 1
    else:
        ret["length"] = int.from_bytes(data[32:36], "little")
    return ret


def response(data: bytes, ret: dict[str, Any]) -> None:
    """Reads a response capsule into `ret`. Raises `Short` if there are fewer than 16 bytes."""
    ret["type"] = "response"
    if RESPONSE_BYTES > len(data):
        raise Short("response capsule ends", len(data))
    result, sqhd, sqid, cid, status = struct.unpack_from("<QHHHH", data)
    kind, code = status >> 9 & 7, status >> 1 & 0xFF
    ret["command_id"] = cid
    ret["sqhd"] = sqhd
    ret["sqid"] = sqid
    ret["result"] = result
    ret["status_code_type"] = kind
    ret["status_code"] = code
    ret["status"] = _STATUS.get((kind, code), f"{kind}/{code:#04x}")
    if status >> 15:
        ret["do_not_retry"] = 1
