# SPDX-License-Identifier: BSD-2-Clause
import socket

class Flow:
    def __init__(
        self,
        src: str,
        dst: str,
        *,
        opcode: int = 4,
        dest_qp: int = 0x11,
        src_qp: int = 0,
        psn: int = 0,
        payload_bytes: int = 64,
        sport: int = 49152,
        ip_id: int = 0,
        roce1: bool = False,
        link: bytes = b"",
    ) -> None: ...
    @property
    def dst(self) -> str: ...
    def send(
        self,
        sock: socket.socket,
        count: int,
        *,
        rate: float = 0.0,
        segments: int = 1,
        first: int = 0,
        repeat: bool = False,
    ) -> int: ...
    def receive(
        self, sock: socket.socket, count: int, *, idle_ms: int = 1000
    ) -> dict[str, int]: ...
