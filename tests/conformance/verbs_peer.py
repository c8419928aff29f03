# SPDX-License-Identifier: BSD-2-Clause
"""Runs in a guest: drives the kernel's RDMA device with pyverbs, as it is told line by line.

A line of input is a JSON object with "do", the name of a command, and its arguments; each is
answered by one line, {"ok": ...} or {"error": ...}. Queue pairs need no connection manager: whoever
gives the commands knows both sides. Words (operations, statuses, rights) are those of livedma.rdma.
"""

from __future__ import annotations

import ctypes
import hashlib
import ipaddress
import json
import mmap
import random
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

DEVICE, PORT = "rxe0", 1
GRH_BYTES = 40  # in front of each datagram that was received
STEP_S = 0.002
# rxe gives user space the kernel's number of the flag, which libibverbs has for another one.
WITH_INVALIDATE = e.IBV_WC_WITH_INV | 1 << 2

TYPES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
OPERATIONS = {
    "SEND": e.IBV_WR_SEND,
    "SEND_WITH_IMM": e.IBV_WR_SEND_WITH_IMM,
    "SEND_WITH_INV": e.IBV_WR_SEND_WITH_INV,
    "WRITE": e.IBV_WR_RDMA_WRITE,
    "WRITE_WITH_IMM": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "READ": e.IBV_WR_RDMA_READ,
    "COMPARE_SWAP": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "FETCH_ADD": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
COMPLETED = {
    e.IBV_WC_SEND: "SEND",
    e.IBV_WC_RDMA_WRITE: "WRITE",
    e.IBV_WC_RDMA_READ: "READ",
    e.IBV_WC_COMP_SWAP: "COMPARE_SWAP",
    e.IBV_WC_FETCH_ADD: "FETCH_ADD",
    e.IBV_WC_BIND_MW: "BIND",
    e.IBV_WC_RECV: "RECV",
    e.IBV_WC_RECV_RDMA_WITH_IMM: "RECV_WRITE_WITH_IMM",
}
STATUSES = {
    getattr(e, name): name.removeprefix("IBV_WC_")
    for name in dir(e)
    if name == "IBV_WC_SUCCESS" or (name.startswith("IBV_WC_") and name.endswith("_ERR"))
}
RIGHTS = {
    "local_write": e.IBV_ACCESS_LOCAL_WRITE,
    "remote_write": e.IBV_ACCESS_REMOTE_WRITE,
    "remote_read": e.IBV_ACCESS_REMOTE_READ,
    "remote_atomic": e.IBV_ACCESS_REMOTE_ATOMIC,
    "bind": e.IBV_ACCESS_MW_BIND,
}
FLAGS = {
    "signaled": e.IBV_SEND_SIGNALED,
    "solicited": e.IBV_SEND_SOLICITED,
    "fence": e.IBV_SEND_FENCE,
    "inline": e.IBV_SEND_INLINE,
}
MTUS = {
    256: e.IBV_MTU_256,
    512: e.IBV_MTU_512,
    1024: e.IBV_MTU_1024,
    2048: e.IBV_MTU_2048,
    4096: e.IBV_MTU_4096,
}


def bits(names: list[str], values: dict[str, int]) -> int:
    return sum(values[name] for name in names)


class Memory:
    """Registered memory that Python reads and writes directly."""

    def __init__(self, pd: PD, length: int, access: list[str]) -> None:
        self.buffer = mmap.mmap(-1, length)
        self._pin = (ctypes.c_char * length).from_buffer(self.buffer)
        self.va = ctypes.addressof(self._pin)
        self.mr = MR(pd, length, bits(access, RIGHTS), address=self.va)

    def close(self) -> None:
        self.mr.close()


class QueuePair:
    def __init__(self, pd: PD, context: Context, kind: str, depth: int, inline: int) -> None:
        self.kind = kind
        self.cqs = {"send": CQ(context, depth + 1), "recv": CQ(context, depth + 1)}
        cap = QPCap(
            max_send_wr=depth,
            max_recv_wr=depth,
            max_send_sge=4,
            max_recv_sge=4,
            max_inline_data=inline,
        )
        init = QPInitAttr(
            qp_type=TYPES[kind], scq=self.cqs["send"], rcq=self.cqs["recv"], cap=cap, sq_sig_all=0
        )
        self.qp = QP(pd, init)
        self.windows: list[MW] = []

    def close(self) -> None:
        for window in self.windows:
            window.close()
        self.qp.close()
        for cq in self.cqs.values():
            cq.close()


class Peer:
    def __init__(self) -> None:
        self.context = Context(name=DEVICE)
        self.pd = PD(self.context)
        self.memories: dict[int, Memory] = {}
        self.qps: dict[int, QueuePair] = {}
        self.handles: dict[tuple[str, str], AH] = {}  # by (own, other) address

    # What there is

    def do_device(self) -> dict[str, Any]:
        port = self.context.query_port(PORT)
        return {"mtu": 128 << port.active_mtu, "state": int(port.state)}

    def do_counters(self) -> dict[str, int]:
        files = Path(f"/sys/class/infiniband/{DEVICE}/ports/{PORT}/hw_counters").iterdir()
        values = {file.name: file.read_text().strip() for file in files}
        return {name: int(value) for name, value in values.items() if name != "lifespan"}

    def _ah_attributes(self, src: str, dst: str) -> AHAttr:
        index = next(
            index
            for index in range(self.context.query_port(PORT).gid_tbl_len)
            if self._gid_number(str(self.context.query_gid(PORT, index))) == gid_number(src)
        )
        gid = GID(":".join(f"{gid_number(dst):032x}"[i : i + 4] for i in range(0, 32, 4)))
        route = GlobalRoute(dgid=gid, sgid_index=index, hop_limit=64)
        return AHAttr(gr=route, is_global=1, port_num=PORT)

    @staticmethod
    def _gid_number(text: str) -> int:
        return int(ipaddress.IPv6Address(text))

    # Memory

    def do_register(self, length: int, access: list[str]) -> dict[str, int]:
        memory = Memory(self.pd, length, access)
        self.memories[memory.mr.rkey] = memory
        return {"key": memory.mr.rkey, "lkey": memory.mr.lkey, "va": memory.va}

    def do_deregister(self, key: int) -> None:
        self.memories.pop(key).close()

    def do_fill(self, key: int, offset: int, length: int, seed: int) -> None:
        self.memories[key].buffer[offset : offset + length] = random.Random(seed).randbytes(length)

    def do_write(self, key: int, offset: int, data: str) -> None:
        given = bytes.fromhex(data)
        self.memories[key].buffer[offset : offset + len(given)] = given

    def do_read(self, key: int, offset: int, length: int) -> str:
        return self.memories[key].buffer[offset : offset + length].hex()

    def do_digest(self, key: int, offset: int, length: int) -> str:
        return hashlib.sha256(self.memories[key].buffer[offset : offset + length]).hexdigest()

    # Queue pairs

    def do_create_qp(self, kind: str, depth: int = 64, inline: int = 0) -> int:
        qp = QueuePair(self.pd, self.context, kind, depth, inline)
        self.qps[qp.qp.qp_num] = qp
        return int(qp.qp.qp_num)

    def do_close_qp(self, qp: int) -> None:
        self.qps.pop(qp).close()

    def do_connect(
        self,
        qp: int,
        *,
        src: str,
        dst: str,
        dest_qp: int,
        mtu: int,
        rq_psn: int,
        sq_psn: int,
        access: list[str],
        timeout: int,
        retry_count: int,
        rnr_retry: int,
        min_rnr_timer: int,
        rd_atomic: int,
    ) -> None:
        """From RESET to RTS, connected with a queue pair elsewhere."""
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = bits(access, RIGHTS)
        attributes.ah_attr = self._ah_attributes(src, dst)
        attributes.path_mtu = MTUS[mtu]
        attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = dest_qp, rq_psn, sq_psn
        attributes.timeout, attributes.retry_cnt = timeout, retry_count
        attributes.rnr_retry, attributes.min_rnr_timer = rnr_retry, min_rnr_timer
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = rd_atomic
        self.qps[qp].qp.to_rts(attributes)

    def do_activate(self, qp: int, qkey: int, sq_psn: int) -> None:
        """From RESET to RTS, for datagrams."""
        attributes = QPAttr(port_num=PORT)
        attributes.qkey, attributes.sq_psn = qkey, sq_psn
        self.qps[qp].qp.to_rts(attributes)

    def do_fail(self, qp: int) -> None:
        self.qps[qp].qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    def do_state(self, qp: int) -> str:
        attributes, _ = self.qps[qp].qp.query(e.IBV_QP_STATE)
        return STATES[attributes.qp_state]

    # Work

    def _sges(self, pieces: list[list[int]]) -> list[SGE]:
        """Pieces are [lkey, address, length]; pyverbs wants at least one."""
        return [SGE(addr=va, length=length, lkey=key) for key, va, length in pieces or [[0, 0, 0]]]

    def do_receive(self, qp: int, requests: list[dict[str, Any]]) -> None:
        for one in requests:
            sges = self._sges(one["pieces"])
            self.qps[qp].qp.post_recv(RecvWR(wr_id=one["wr_id"], sg=sges, num_sge=len(sges)))

    def do_send(self, qp: int, requests: list[dict[str, Any]]) -> None:
        for one in requests:
            self.qps[qp].qp.post_send(self._send_request(one))

    def _send_request(self, one: dict[str, Any]) -> SendWR:
        operation, sges = one["operation"], self._sges(one["pieces"])
        wr = SendWR(
            wr_id=one["wr_id"],
            opcode=OPERATIONS[operation],
            num_sge=len(sges),
            sg=sges,
            send_flags=bits(one["flags"], FLAGS),
        )
        if operation.endswith("_WITH_IMM"):
            wr.imm_data = socket.htonl(one["imm"])
        elif operation == "SEND_WITH_INV":
            wr.imm_data = one["rkey"]  # the union's other member, in the host's order
        if operation in ("COMPARE_SWAP", "FETCH_ADD"):
            first = one["compare"] if operation == "COMPARE_SWAP" else one["swap_add"]
            wr.set_wr_atomic(one["rkey"], one["remote_va"], first, one["swap_add"])
        elif operation.startswith(("WRITE", "READ")):
            wr.set_wr_rdma(one["rkey"], one["remote_va"])
        if one.get("to"):
            src, dst, remote_qp, qkey = one["to"]
            if (src, dst) not in self.handles:
                self.handles[src, dst] = AH(self.pd, attr=self._ah_attributes(src, dst))
            wr.set_wr_ud(self.handles[src, dst], remote_qp, qkey)
        return wr

    def do_bind(self, qp: int, wr_id: int, key: int, offset: int, length: int) -> int:
        """Posts the binding of a new type 2 window, the only thing a peer can invalidate here."""
        window = MW(self.pd, e.IBV_MW_TYPE_2)
        self.qps[qp].windows.append(window)
        memory = self.memories[key]
        rights = bits(["remote_write", "remote_read", "remote_atomic"], RIGHTS)
        wr = SendWR(wr_id=wr_id, opcode=e.IBV_WR_BIND_MW)
        wr.set_bind_wr(window, MWBindInfo(memory.mr, memory.va + offset, length, rights))
        rkey = int(wr.rkey)
        self.qps[qp].qp.post_send(wr)
        return rkey

    def do_poll(self, qp: int, queue: str, count: int, timeout_s: float) -> list[dict[str, Any]]:
        """Waits for `count` completions, or as long as it may; returns what there is."""
        cq, end_s, found = self.qps[qp].cqs[queue], time.monotonic() + timeout_s, []
        while True:
            number, completions = cq.poll(count - len(found))
            found += [self._described(one) for one in completions[:number]]
            if len(found) >= count or time.monotonic() >= end_s:
                return found
            time.sleep(STEP_S)

    def _described(self, wc: Any) -> dict[str, Any]:
        return {
            "wr_id": wc.wr_id,
            "status": STATUSES[wc.status],
            "operation": COMPLETED.get(wc.opcode, str(wc.opcode)),
            "length": wc.byte_len,
            "src_qp": wc.src_qp,
            "imm": socket.ntohl(wc.imm_data) if wc.wc_flags & e.IBV_WC_WITH_IMM else None,
            "invalidated": wc.imm_data if wc.wc_flags & WITH_INVALIDATE else None,
        }


def gid_number(address: str) -> int:
    ip = ipaddress.ip_address(address)
    return int(ip) if ip.version == 6 else 0xFFFF << 32 | int(ip)


def main() -> None:
    peer = Peer()
    print(json.dumps({"ok": peer.do_device()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(peer, "do_" + request.pop("do"))(**request)}
        except (PyverbsError, LookupError, TypeError, ValueError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
