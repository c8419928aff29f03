# SPDX-License-Identifier: BSD-2-Clause
"""A process with a device: a test tells it by lines of JSON what to do, and it answers so.

As a program it is that process; as a module it brings Member, by which a test has one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pairs import End

from livedma.rdma import Device, cm


class Process:
    """What such a process can do."""

    def __init__(self, address: str, **options: Any) -> None:
        self.device = Device(address, **options)
        self.ends: dict[int, End] = {}
        self.connections: list[cm.Connection] = []

    def about(self) -> dict[str, Any]:
        names = ("slot", "is_shared", "port_kind", "share_reason")
        return {name: getattr(self.device, name) for name in names}

    def end(self) -> int:
        """A new queue pair, by its number."""
        end = End(self.device)
        self.ends[end.qp.number] = end
        return end.qp.number

    def connect(self, own: int, address: str, number: int) -> None:
        end = self.ends[own]
        end.connect_to(address, number)
        for i in range(8):
            end.qp.post_recv(i, [end.region[i * 1000 : (i + 1) * 1000]])

    def send(self, own: int, text: str) -> str:
        """How it completed."""
        self.ends[own].qp.post_send(99, "SEND", inline=text.encode())
        return self.ends[own].complete()[0].status

    def receive(self, own: int) -> str:
        done = self.ends[own].complete()[0]
        start = done.wr_id * 1000
        return self.ends[own].memory[start : start + done.length].decode()

    def listen(self, port: int) -> None:
        self.listener = cm.listen(self.device, port)

    def accept(self, text: str) -> bool:
        """Takes a connection."""
        connection = self.listener.get(10).accept(private_data=text.encode())
        self.connections.append(connection)
        return connection.is_established

    def dial(self, address: str, port: int) -> str:
        """What the listener says."""
        connection = cm.connect(self.device, address, port, timeout=60)
        self.connections.append(connection)
        return connection.private_data.rstrip(b"\0").decode()

    def claim(self, port: int) -> None:
        self.device.claim_port(port)

    def counters(self) -> dict[str, int]:
        return {**self.device.counters, **self.device.port_counters}

    def close(self) -> None:
        self.device.close()


class Member:
    """Such a process, from outside: member.call("send", number, "text") and so on."""

    def __init__(self, address: str, *wrapper: str, **options: Any) -> None:
        command = [*wrapper, sys.executable, __file__, address, json.dumps(options)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = address
        try:
            about = self.call("about")
        except BaseException:
            self.__exit__()
            raise
        self.slot: int = about["slot"]
        self.is_shared: bool = about["is_shared"]
        self.port_kind: str = about["port_kind"]
        self.share_reason: str = about["share_reason"]

    def start(self, name: str, *arguments: Any) -> None:
        """Tells what to do; finish() waits until it is done."""
        assert self.process.stdin is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)

    def finish(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait(60)}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def call(self, name: str, *arguments: Any) -> Any:
        self.start(name, *arguments)
        return self.finish()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()


def main(address: str, options: str) -> None:
    process: Process | None = None
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            process = process or Process(address, **json.loads(options))
            answer = {"value": getattr(process, name)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
