# SPDX-License-Identifier: BSD-2-Clause
"""Formats a server's log for programs: an object a line, or fields for systemd's journal."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from livedma.control.events import Event
from livedma.errors import LivedmaError
from livedma.rpc.connection_log import Told

__all__ = ["JOURNAL", "JournalHandler", "JsonFormatter"]

JOURNAL: Final = Path("/run/systemd/journal/socket")
_SEND_S = 0.5  # a journal that does not read must not hold up the controller
# levels and syslog's priorities, which journalctl -p takes
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def _event(record: logging.LogRecord) -> Event | None:
    found = getattr(record, "event", None)
    return found if isinstance(found, Event) else None


def _told(record: logging.LogRecord) -> Event | Told | None:
    """Returns what the record says in parts: an event of the controller, or of a connection."""
    found = getattr(record, "told", None)
    return found if isinstance(found, Told) else _event(record)


def _encoded(data: Mapping[str, Any]) -> bytes:
    """Encodes data as JSON; what JSON has no word for (not a number) becomes null."""
    return orjson.dumps(data, default=str, option=orjson.OPT_NON_STR_KEYS)


class JsonFormatter(logging.Formatter):
    """Writes an object a line, with time (RFC 3339), level, kind, connection, text and data."""

    def format(self, record: logging.LogRecord) -> str:
        event, told = _event(record), _told(record)
        created_s = record.created if event is None else event.wall_s
        time = datetime.fromtimestamp(created_s, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "kind": "log" if told is None else told.kind,
            "connection": None if told is None else told.connection,
            "text": record.getMessage() if told is None else told.text,
            "data": {} if told is None else told.data,
        }
        if event is None:
            found["logger"] = record.name
        else:
            found |= {"number": event.number, "dry": event.dry}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return _encoded(found).decode()


class JournalHandler(logging.Handler):
    """Sends fields to journald by its own protocol (systemd.journal-fields): one datagram a record.

    A record that is too long for a datagram goes into a sealed file, whose descriptor is sent. A
    record that the journal does not take goes to standard error.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        if not path.is_socket():
            raise LivedmaError(f"no journal listens at {path}: take --log-format text or json")
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_SEND_S)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(b"".join(self._fields(record)))
        except OSError as error:
            print(f"{record.getMessage()} (not in the journal: {error})", file=sys.stderr)

    def _fields(self, record: logging.LogRecord) -> Iterator[bytes]:
        event, told = _event(record), _told(record)
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + logging.Formatter().formatException(record.exc_info)
        yield _field("MESSAGE", message)
        priority = next((one for level, one in _PRIORITIES if record.levelno >= level), 7)
        yield _field("PRIORITY", str(priority))
        yield _field("SYSLOG_IDENTIFIER", "livedma")
        yield _field("LIVEDMA_KIND", "log" if told is None else told.kind)
        if told is None:
            return
        if told.connection is not None:
            yield _field("LIVEDMA_CONNECTION", str(told.connection))
        if event is not None:
            yield _field("LIVEDMA_NUMBER", str(event.number))
            yield _field("LIVEDMA_DRY", str(int(event.dry)))
        yield _field("LIVEDMA_DATA", _encoded(told.data).decode())

    def _send(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._path)
            return
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
        with os.fdopen(os.memfd_create("journal", os.MFD_ALLOW_SEALING), "wb") as file:
            file.write(datagram)
            file.flush()
            fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, _SEALS)
            ancillary = (
                socket.SOL_SOCKET,
                socket.SCM_RIGHTS,
                file.fileno().to_bytes(4, sys.byteorder),
            )
            self._socket.sendmsg([], [ancillary], 0, self._path)

    def close(self) -> None:
        self._socket.close()
        super().close()


def _field(name: str, value: str) -> bytes:
    """Encodes a field. A value with a line break has its length before it, so that the journal
    takes no line of it for a field.
    """
    raw = value.encode(errors="surrogateescape")
    if b"\n" not in raw:
        return b"%s=%s\n" % (name.encode(), raw)
    return b"%s\n%s%s\n" % (name.encode(), len(raw).to_bytes(8, "little"), raw)
