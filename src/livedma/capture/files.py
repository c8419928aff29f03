# SPDX-License-Identifier: BSD-2-Clause
"""Reads capture files, pcap and pcapng, as batches of decoded packets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Thread

from livedma._native.files import FileReader, Interface
from livedma._native.wire import Batch
from livedma.errors import CaptureFileError

STANDARD_INPUT = "-"

#: One in use, one ready, one being filled.
_BATCHES = 3


class CaptureFile:
    """Reads a capture file once, from its start to its end.

    Iterating gives batches of packets. Each is valid until the caller asks for the next one, which
    a thread reads and decodes meanwhile. A batch may have no packets, only frames that are counted.
    A file that breaks off gives all its whole packets, then raises.
    """

    def __init__(self, path: str | os.PathLike[str], capacity: int = 2048) -> None:
        self.name = "standard input" if path == STANDARD_INPUT else os.fspath(path)
        self._capacity = capacity
        self._thread: Thread | None = None
        self._is_closed = False
        self._unused: SimpleQueue[Batch | None] = SimpleQueue()
        self._filled: SimpleQueue[Batch | BaseException | None] = SimpleQueue()
        try:
            self._reader = FileReader(0 if path == STANDARD_INPUT else path)
        except OSError as error:
            raise self._failure(error) from None
        except ValueError as error:  # a path with a NUL byte
            raise CaptureFileError(f"{self.name!r}: {error}") from None

    def _failure(self, error: OSError) -> CaptureFileError:
        return CaptureFileError(f"{self.name}: cannot be read: {error.strerror}")

    def _read_ahead(self) -> None:
        try:
            while (batch := self._unused.get()) is not None:
                if not self._reader.next_batch(batch):
                    break
                self._filled.put(batch)
            self._filled.put(None)
        except BaseException as error:  # raised again by the iteration
            self._filled.put(error)
        finally:
            self._reader.close()

    def __iter__(self) -> Iterator[Batch]:
        if self._thread is None and not self._is_closed:
            for _ in range(_BATCHES):
                self._unused.put(Batch(self._capacity))
            # A pipe may block the thread for ever: it must not keep the process alive.
            self._thread = Thread(target=self._read_ahead, name="read ahead", daemon=True)
            self._thread.start()
        while not self._is_closed:
            item = self._filled.get()
            if isinstance(item, OSError):
                raise self._failure(item) from None
            if isinstance(item, BaseException):
                raise item
            if item is None:
                self.close()
                break
            yield item
            self._unused.put(item)
        if self._reader.error is not None:
            raise CaptureFileError(f"{self.name}: {self._reader.error}")

    def __enter__(self) -> CaptureFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        if self._thread is None:
            self._reader.close()
        else:
            self._unused.put(None)  # the thread closes the file, since it may be reading it

    @property
    def format(self) -> str | None:
        """Returns the file's format: 'pcap' or 'pcapng'; None before the first batch."""
        return self._reader.format

    @property
    def frames(self) -> int:
        """Frames read so far, RoCE or not; some of them may be in batches not yet asked for."""
        return self._reader.frames

    @property
    def drops(self) -> int:
        """Frames that the capturing side says it dropped."""
        return self._reader.drops

    @property
    def interfaces(self) -> list[Interface]:
        return self._reader.interfaces

    @property
    def warnings(self) -> list[str]:
        """Sentences about what could not be used: link types, contradicting lengths."""
        count = self._reader.contradictions
        if not count:
            return self._reader.warnings
        cut = f"{count} frame{'s'[: count > 1]} with contradicting lengths: cut to what is there"
        return [*self._reader.warnings, cut]


def read(path: str | os.PathLike[str], capacity: int = 2048) -> CaptureFile:
    """Opens a capture file, or standard input for "-"."""
    return CaptureFile(path, capacity)
