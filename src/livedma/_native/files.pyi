# SPDX-License-Identifier: BSD-2-Clause
from os import PathLike
from typing import NamedTuple, Self, final

from livedma._native.wire import Batch

class Interface(NamedTuple):
    """Describes an interface of a capture file.

    link: the type of its frames. snaplen: the most bytes that were kept of a frame; 0: all. frames:
    those that were read so far. received, dropped: the counts of the capturing side; None: it says
    none.
    """

    name: str
    link: int
    snaplen: int
    frames: int
    received: int | None
    dropped: int | None

@final
class FileReader:
    """Reads a pcap or pcapng file, pipe or descriptor in bounded memory.

    A batch's packets are valid until that batch is filled again; several batches may be in use at a
    time.
    """

    def __new__(cls, source: int | str | bytes | PathLike[str]) -> Self: ...
    def next_batch(self, batch: Batch) -> bool:
        """Fills the batch with the packets that come next. False: the file is over; see error.

        It waits only while there is no packet to give, so a slow pipe delivers packets as they
        come.
        """
    def close(self) -> None:
        """Closes the file if it opened it. Batches stay valid."""
    @property
    def format(self) -> str | None:
        """Names the file's format: 'pcap', 'pcapng', or None before the first batch."""
    @property
    def frames(self) -> int:
        """Counts the frames that were read so far, RoCE or not."""
    @property
    def offset(self) -> int:
        """Counts the bytes of the file that were used so far."""
    @property
    def contradictions(self) -> int:
        """Counts the frames whose lengths contradict each other; they were cut to the bytes that
        are there.
        """
    @property
    def error(self) -> str | None:
        """Says in one sentence why reading ended before the file's end; None if it did not."""
    @property
    def truncated(self) -> bool:
        """Tells whether the file ends inside a block or a record."""
    @property
    def drops(self) -> int:
        """Counts the frames that the capturing side says it dropped."""
    @property
    def interfaces(self) -> list[Interface]:
        """Lists what the file says about its interfaces so far, in order."""
    @property
    def link_types(self) -> list[int]:
        """Lists the link types of its interfaces so far, each once, in order."""
    @property
    def warnings(self) -> list[str]:
        """Has one sentence for each link type that carried frames which cannot be decoded."""
