# SPDX-License-Identifier: BSD-2-Clause
"""Says in one short phrase what a packet carries, for a listing with a line per packet."""

from __future__ import annotations

from typing import Any


def brief(found: dict[str, Any]) -> str:
    """Returns a phrase for the result of `Inside.look`; empty: nothing was recognised."""
    for layer, say in (("rpc", _rpc), ("rpcrdma", _rpcrdma), ("nvme", _nvme), ("cm", _cm)):
        if layer in found:
            phrase = say(found[layer])
            return f"{phrase} malformed" if "error" in found[layer] else phrase
    if "mad" in found:
        mad = found["mad"]
        if "error" in mad:
            return "MAD malformed"
        return f"MAD class {mad['class']:#04x} attribute {mad['attribute']:#06x}"
    return ""


def _cm(cm: dict[str, Any]) -> str:
    words = ["CM", cm["attribute"]]
    port = cm.get("port", cm.get("connection", {}).get("port"))
    if port is not None:
        words.append(f"port {port}")
    if "reason_name" in cm:
        words.append(f"({cm['reason_name']})")
    return " ".join(words)


def _rpcrdma(header: dict[str, Any]) -> str:
    if "rdma_error" in header:
        return f"RPC/RDMA error {header['rdma_error']}"
    if "proc" not in header:
        return "RPC/RDMA"
    return f"RPC/RDMA {header['proc']} xid {header['xid']:#x}"


def _rpc(rpc: dict[str, Any]) -> str:
    words = [_program(rpc), rpc.get("type", "message")]
    if "ops" in rpc:
        words += rpc["ops"]
    elif "procedure_name" in rpc:
        words.append(rpc["procedure_name"])
    if rpc.get("truncated"):
        words.append("...")
    for key in ("reject_stat", "accept_stat", "status"):
        if rpc.get(key, "SUCCESS") not in ("SUCCESS", "NFS3_OK", "NFS4_OK"):
            words.append(rpc[key])
    if "carried_in" in rpc:
        words.append(f"in {rpc['carried_in'].replace('_', ' ')}")
    if "sequence" in rpc:
        words.append(f"slot {rpc['sequence']['slot']}")
    if "xid" in rpc:
        words.append(f"xid {rpc['xid']:#x}")
    return " ".join(words)


def _program(rpc: dict[str, Any]) -> str:
    if "program_name" not in rpc:
        return "RPC"
    name = rpc["program_name"]
    if name.isdigit():
        return f"RPC {name}"
    if name in ("NFS", "NFS_CB") and "minor" in rpc:
        return f"{name.replace('NFS', 'NFS4.' + str(rpc['minor']))}"
    return f"{name}{rpc['version']}"


def _nvme(nvme: dict[str, Any]) -> str:
    words = ["NVMe"]
    if "opcode_name" in nvme:
        words.append(nvme["opcode_name"])
    if nvme["type"] == "response":
        words.append("response")
    if "command_id" in nvme:
        words.append(f"cid {nvme['command_id']}")
    if "qid" in nvme:
        words.append(f"qid {nvme['qid']}")
    if nvme.get("sgl", {}).get("length"):
        words.append(f"{nvme['sgl']['length']} B")
    if "status" in nvme:
        words.append(nvme["status"])
    return " ".join(words)
