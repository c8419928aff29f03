# SPDX-License-Identifier: BSD-2-Clause
"""Says where the page is: at an address and a port, or at a socket that was handed down."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
from dataclasses import dataclass

from livedma.errors import LivedmaError, PortInUseError

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Where", "is_local", "listening", "url_of"]

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 20080
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Where:
    """Names the page's place. fd: a listening socket of this process; then host and port have no
    meaning."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    fd: int | None = None

    @classmethod
    def parse(cls, text: str, *, port: int = DEFAULT_PORT) -> Where:
        """Reads ADDR:PORT, ADDR, :PORT, [ADDR]:PORT or fd:N. Raises ValueError."""
        if match := re.fullmatch(r"fd:(\d{1,9})", text):
            return cls(fd=int(match[1]))
        match = re.fullmatch(r"(\[[0-9a-fA-F:.%\w]+\]|[\w.-]*)(?::(\d{1,5}))?", text, re.ASCII)
        if match is None or not text or int(match[2] or 0) > 65535:
            if _is_address(text):  # IPv6 without the brackets that a port would need
                return cls(text, port)
            raise ValueError(f"{text!r} is no address: write {DEFAULT_HOST}:{DEFAULT_PORT}")
        number = int(match[2]) if match[2] is not None else port
        return cls(match[1].strip("[]") or DEFAULT_HOST, number)

    def __str__(self) -> str:
        return self.authority if self.fd is None else f"fd:{self.fd}"

    @property
    def authority(self) -> str:
        """Returns it in the form of URLs."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def listening(where: Where) -> socket.socket:
    """Returns a socket that accepts connections there. Raises LivedmaError."""
    if where.fd is not None:
        return _handed_down(where.fd)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise LivedmaError(f"{where.host} is no address of a page: {error.strerror}") from None
    ret = socket.socket(family, kind, protocol)
    try:
        ret.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ret.bind(address)
        ret.listen(_BACKLOG)
    except OSError as error:
        ret.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"another program listens at {where.authority}: "
                "put the page elsewhere by --web ADDR:PORT"
            ) from None
        raise LivedmaError(f"no page at {where.authority}: {error.strerror}") from None
    return ret


def _handed_down(fd: int) -> socket.socket:
    try:
        is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
        ret = socket.socket(fileno=os.dup(fd)) if is_socket else None
    except OSError as error:
        raise LivedmaError(f"fd:{fd}: {error.strerror}") from None
    is_inet = ret is not None and ret.family in (socket.AF_INET, socket.AF_INET6)
    if ret is None or not is_inet or not ret.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        if ret is not None:
            ret.close()
        raise LivedmaError(f"fd:{fd} is no socket that listens for TCP")
    os.set_inheritable(ret.fileno(), False)
    return ret


def is_local(sock: socket.socket) -> bool:
    """Returns whether only this host can reach it."""
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback


def url_of(sock: socket.socket, token: str = "") -> str:
    """Returns the URL, with the token in its fragment, which browsers keep to themselves."""
    host, port = sock.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = socket.gethostname()
    fragment = f"#token={token}" if token else ""
    return f"http://{Where(host, port).authority}/{fragment}"
