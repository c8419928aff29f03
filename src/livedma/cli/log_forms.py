"""What a server says, for programs: an object a line, or fields for systemd's journal."""

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

__all__ = ["JOURNAL", "JournalHandler", "JsonFormatter"]

JOURNAL: Final = Path("/run/systemd/journal/socket")
_SEND_S = 0.5  # a journal that does not listen must not hold up who decides
# syslog's, as journalctl -p takes them
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def _event(record: logging.LogRecord) -> Event | None:
    found = getattr(record, "event", None)
    return found if isinstance(found, Event) else None


def _encoded(data: Mapping[str, Any]) -> bytes:
    """JSON; what it has no word for (not a number) becomes null."""
    return orjson.dumps(data, default=str, option=orjson.OPT_NON_STR_KEYS)


class JsonFormatter(logging.Formatter):
    """An object a line. All have time (RFC 3339), level, kind, connection, text and data."""

    def format(self, record: logging.LogRecord) -> str:
        event = _event(record)
        created_s = record.created if event is None else event.wall_s
        time = datetime.fromtimestamp(created_s, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "kind": "log" if event is None else event.kind,
            "connection": None if event is None else event.connection,
            "text": record.getMessage() if event is None else event.text,
            "data": {} if event is None else event.data,
        }
        if event is None:
            found["logger"] = record.name
        else:
            found |= {"number": event.number, "dry": event.dry}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return _encoded(found).decode()


class JournalHandler(logging.Handler):
    """Fields for journald, by its own protocol (systemd.journal-fields): a datagram for each; what
    is too long for one is a sealed file, and handed over.

    What the journal does not take goes to standard error.
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
        event = _event(record)
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + logging.Formatter().formatException(record.exc_info)
        yield _field("MESSAGE", message)
        priority = next((one for level, one in _PRIORITIES if record.levelno >= level), 7)
        yield _field("PRIORITY", str(priority))
        yield _field("SYSLOG_IDENTIFIER", "livedma")
        yield _field("LIVEDMA_KIND", "log" if event is None else event.kind)
        if event is None:
            return
        if event.connection is not None:
            yield _field("LIVEDMA_CONNECTION", str(event.connection))
        yield _field("LIVEDMA_NUMBER", str(event.number))
        yield _field("LIVEDMA_DRY", str(int(event.dry)))
        yield _field("LIVEDMA_DATA", _encoded(event.data).decode())

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
    """A value with a line break has its length before it: nothing in it is taken for a field."""
    raw = value.encode(errors="surrogateescape")
    if b"\n" not in raw:
        return b"%s=%s\n" % (name.encode(), raw)
    return b"%s\n%s%s\n" % (name.encode(), len(raw).to_bytes(8, "little"), raw)
