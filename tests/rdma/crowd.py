# SPDX-License-Identifier: BSD-2-Clause
"""One side of a thousand connections, in a process of its own so that its memory can be looked at.

Reads commands, one a line, and answers each with a line of JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import struct
import sys
import threading
import time
from typing import Any

from livedma.rdma import Device, WorkRequest, cm

SIZE = 64 << 10


def resident() -> int:
    """Bytes, of what is really in use: what was freed is given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Server:
    def __init__(self, address: str) -> None:
        self.device = Device(address)
        self.listener = cm.listen(self.device, 7000)
        self.pd = self.device.protection_domain()
        self.region = self.pd.register(bytearray(SIZE), "remote_write")
        self.connections: list[cm.Connection] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        where = struct.pack("!QI", self.region.va, self.region.rkey)
        for request in self.listener:
            self.connections.append(request.accept(pd=self.pd, private_data=where))

    def report(self) -> dict[str, Any]:
        return {"resident": resident(), "connections": len(self.connections)}

    def close(self) -> dict[str, Any]:
        """Every connection, to the end of its time; the device stays."""
        while self.connections:
            self.connections.pop().close()
        for _ in range(600):
            with cm.manager(self.device).engine() as (engine, _):
                if not engine.connections:
                    break
            time.sleep(0.1)
        return self.report()


class Client:
    def __init__(self, address: str, server: str) -> None:
        self.device = Device(address)
        self.server = server
        self.pd = self.device.protection_domain()
        self.cq = self.device.completion_queue(4096)
        self.region = self.pd.register(bytearray(SIZE))
        self.connections: list[cm.Connection] = []

    def connect(self, count: int) -> dict[str, Any]:
        for _ in range(count):
            self.connections.append(
                cm.connect(self.device, self.server, 7000, pd=self.pd, cq=self.cq, timeout=60)
            )
        return {"connections": len(self.connections)}

    def work(self, busy: int, operations: int) -> dict[str, Any]:
        """So many WRITEs, by as many connections as are busy, each with two under way."""
        requests = []
        for number, connection in enumerate(self.connections[:busy]):
            va, rkey = struct.unpack_from("!QI", connection.private_data)
            requests.append(WorkRequest(number, "WRITE", [self.region[:]], remote_va=va, rkey=rkey))
            connection.qp.post_sends([requests[-1]] * 2)
        done, left = [0] * busy, 2 * busy
        while left:
            for completion in self.cq.wait(60):
                assert completion.status == "SUCCESS", completion
                if sum(done) < operations:
                    done[completion.wr_id] += 1
                    self.connections[completion.wr_id].qp.post_sends([requests[completion.wr_id]])
                else:
                    left -= 1
        return {"done": done}

    def close(self) -> dict[str, Any]:
        for connection in self.connections:
            connection.disconnect(timeout=60)
            connection.close()
        self.connections.clear()
        return {}


def main() -> None:
    role, *addresses = sys.argv[1:]
    side = Server(*addresses) if role == "server" else Client(*addresses)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        print(json.dumps(getattr(side, command)(*map(int, arguments))), flush=True)


main()
