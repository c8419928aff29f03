# SPDX-License-Identifier: BSD-2-Clause
from livedma._native.wire import Batch

VERSION: int

def column_infos() -> list[tuple[str, str, int, bool]]:
    """Returns [(name, Arrow type, bytes a value (0: a bit), nullable)] in order."""

class Columns:
    """Holds a set of rows, filled once. Arrow arrays over it keep it alive."""

    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def is_full(self) -> bool:
        """Tells whether there is no room for another packet."""
    def append(self, batch: Batch, first: int = 0) -> int:
        """Takes packets of the batch from `first` on; returns how many fitted."""
    def column(self, index: int) -> tuple[int, int]:
        """Returns the addresses of a column's values and of its validity bitmap (0: never null)."""
    @property
    def src(self) -> int:
        """Is the address of the indexes of source addresses, one for each row."""
    @property
    def dst(self) -> int:
        """Is the address of the indexes of destination addresses, one for each row."""
    @property
    def errors(self) -> tuple[int, int, int, int]:
        """Holds the addresses of the error column's validity, offsets and text, and the length of
        the text.
        """
    def addresses(self) -> list[str]:
        """Returns the texts that src and dst are indexes of."""
