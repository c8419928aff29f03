"""Capture files: pcap and pcapng in, as batches of decoded packets."""

import os
from collections.abc import Iterator
from types import TracebackType

from livedma._native.files import FileReader, Interface
from livedma._native.wire import Batch
from livedma.errors import CaptureFileError

STANDARD_INPUT = "-"


class CaptureFile:
    """A capture file that is being read, once, from its start to its end.

    Iterating gives batches of packets. It is one batch, filled again and again: use what is in it
    before asking for the next. A file that breaks off gives all its whole packets, then raises.
    """

    def __init__(self, path: str | os.PathLike[str], capacity: int = 2048) -> None:
        self.name = "standard input" if path == STANDARD_INPUT else os.fspath(path)
        self._batch = Batch(capacity)
        try:
            self._reader = FileReader(0 if path == STANDARD_INPUT else path)
        except OSError as error:
            raise self._failure(error) from None
        except ValueError as error:  # a path with a NUL byte
            raise CaptureFileError(f"{self.name!r}: {error}") from None

    def _failure(self, error: OSError) -> CaptureFileError:
        return CaptureFileError(f"{self.name}: cannot be read: {error.strerror}")

    def __iter__(self) -> Iterator[Batch]:
        try:
            while self._reader.next_batch(self._batch):
                yield self._batch
        except OSError as error:
            raise self._failure(error) from None
        if self._reader.error is not None:
            raise CaptureFileError(f"{self.name}: {self._reader.error}")

    def __enter__(self) -> "CaptureFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()

    @property
    def format(self) -> str | None:
        """'pcap' or 'pcapng'; None before the first batch."""
        return self._reader.format

    @property
    def frames(self) -> int:
        """Frames read so far, RoCE or not."""
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
