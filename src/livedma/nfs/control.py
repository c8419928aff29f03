# SPDX-License-Identifier: BSD-2-Clause
"""Offers a server's control API at a Unix socket: one JSON object a line, for programs and people.

    {"do": "set_credits", "connection": 3, "credits": 128}  ->  {"ok": {...}}
    {"do": "fly"}                                           ->  {"error": "there is no 'fly': ..."}

Requests on one connection are answered in their order. Only the server's own user may connect.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import orjson

from livedma.errors import LivedmaError

__all__ = ["Control", "ControlError", "ControlServer", "is_answered"]

LINE_MOST = 1 << 16
CONNECTIONS_MOST = 32
PATH_MOST = 107  #: bytes of a socket's path: sun_path has room for them and a NUL (unix(7))
_PATIENCE_S = 30.0
_AGAIN_S = 0.1
_FOR_A_WHILE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)

Method = Callable[..., object]


class ControlError(LivedmaError):
    """Reports that the server could not be reached, or did not do what it was asked."""


class ControlServer:
    """Calls `methods` for requests; the parameters are those of the request."""

    def __init__(self, path: Path, methods: Mapping[str, Method]) -> None:
        self.path = path
        self._methods = dict(methods)
        self._places = threading.BoundedSemaphore(CONNECTIONS_MOST)
        self._lock = threading.Lock()
        self._peers: set[socket.socket] = set()
        self._socket = _listen(path)
        self._inode = path.stat().st_ino
        self._thread = threading.Thread(target=self._accept, name="control", daemon=True)
        self._thread.start()

    def add(self, methods: Mapping[str, Method]) -> None:
        """Adds methods from now on."""
        self._methods = {**self._methods, **methods}

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError as error:
                if error.errno not in _FOR_A_WHILE:
                    return
                time.sleep(_AGAIN_S)
                continue
            if not self._places.acquire(blocking=False):
                with peer, contextlib.suppress(OSError):
                    peer.sendall(_line({"error": f"{CONNECTIONS_MOST} are connected already"}))
                continue
            with self._lock:
                self._peers.add(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            with peer, peer.makefile("rb") as lines, contextlib.suppress(OSError):
                while line := lines.readline(LINE_MOST):
                    if not line.endswith(b"\n"):  # Too long, or the peer left in the middle of it.
                        peer.sendall(_line({"error": f"a line has {LINE_MOST} bytes at most"}))
                        break
                    peer.sendall(_line(self.answer(line)))
        finally:
            with self._lock:
                self._peers.discard(peer)
            self._places.release()

    def answer(self, line: bytes) -> dict[str, object]:
        """Returns the answer to one request."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict) or "do" not in request:
            return {"error": 'a request is an object on one line, such as {"do": "sessions"}'}
        name = request.pop("do")
        method = self._methods.get(name) if isinstance(name, str) else None
        if method is None:
            return {"error": f"there is no {name!r}: one of {', '.join(sorted(self._methods))}"}
        try:
            inspect.signature(method).bind(**request)
        except TypeError as error:
            return {"error": f"{name}: {error}"}
        try:
            return {"ok": method(**request)}
        except (LivedmaError, ValueError, TypeError, OSError) as error:
            return {"error": f"{name}: {error}"}

    def close(self) -> None:
        """Ends the server and removes the socket, unless that is another server's by now."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        with self._lock:
            for peer in self._peers:
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
        self._thread.join(_PATIENCE_S)


class Control:
    """Asks a server by its control socket: `control.ask("sessions")`."""

    def __init__(self, path: Path | str, timeout: float = _PATIENCE_S) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ControlError(f"no server answers at {path}: {error.strerror or error}") from None
        self._lines = self._socket.makefile("rb")

    def ask(self, do: str, **parameters: object) -> Any:
        """Returns the server's answer to a request. Raises ControlError."""
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):  # the reason may be there to be read
                self._socket.sendall(_line({"do": do, **parameters}))
            with contextlib.suppress(ConnectionResetError):
                line = self._lines.readline()
        except OSError as error:
            raise ControlError(f"the server does not answer: {error}") from None
        if not line:
            raise ControlError("the server has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ControlError(answer["error"])
        return answer["ok"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _line(value: object) -> bytes:
    # For a thousand sessions, Python's own encoder takes as long as serving a thousand calls.
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def _listen(path: Path) -> socket.socket:
    """Makes a socket that only its owner may use; one left behind by a dead server is replaced."""
    ret = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket() and not is_answered(path):
            path.unlink()
        ret.bind(str(path))
        # No client can connect before listen(). A umask would do it at once, but also apply to
        # files that other threads make meanwhile.
        os.chmod(path, 0o600)
        ret.listen(CONNECTIONS_MOST)
    except OSError as error:
        ret.close()
        raise ControlError(f"no control socket at {path}: {_why_not(path, error)}") from None
    return ret


def _why_not(path: Path, error: OSError) -> str:
    """Returns why a socket cannot be made there."""
    length = len(os.fsencode(path))
    if length > PATH_MOST:
        return f"the path has {length} bytes, and a socket's has {PATH_MOST} at most"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if error.errno == errno.EADDRINUSE:
        if path.is_dir():
            return "it is a directory; name a file in it"
        return "another server listens there" if path.is_socket() else "there is a file already"
    return error.strerror or str(error)


def is_answered(path: Path) -> bool:
    """Returns whether a server listens there; none does on one left behind by a dead server."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
