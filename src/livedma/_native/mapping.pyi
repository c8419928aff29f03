# SPDX-License-Identifier: BSD-2-Clause
def can_guard() -> bool:
    """Returns whether this process may copy from and to its own memory by a system call; windows on
    files need it.
    """

class Mapping:
    """Maps a range of this process's memory, which is a buffer. Children of fork do not have it, so
    memory that is given back is free.

    With fd it maps a file, and shares it with all others that map it; without one the memory is
    anonymous.
    """

    def __init__(
        self, length: int, align: int = 4096, *, fd: int = -1, offset: int = 0
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...
    @property
    def length(self) -> int:
        """Counts its bytes."""
    @property
    def views(self) -> int:
        """Counts the buffers on it that are in use."""
    @property
    def closed(self) -> bool:
        """Tells whether `close` was called."""
    @property
    def address(self) -> int:
        """Is its address in this process."""
    def close(self) -> None:
        """Gives the memory back once no view of it is left. No new view is made."""
    def want_huge(self) -> None:
        """Asks for huge pages, which it gets if there are any when it is populated."""
    def populate(self) -> None:
        """Brings all of it into memory, ready to be written."""
    def load(self) -> None:
        """Brings all of it into memory to be read, so that no page of a file has to be written
        back.
        """
    def prefer_node(self, node: int) -> None:
        """Prefers memory of this node. It is called before the memory is populated."""
    def huge_bytes(self) -> int | None:
        """Returns how many bytes of it are in huge pages; None if this kernel (before 6.7) does not
        tell.
        """
    def flush(self, offset: int, length: int) -> None:
        """Writes a range of a file's memory to disk, and returns when it is there."""
