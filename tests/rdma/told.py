# SPDX-License-Identifier: BSD-2-Clause
"""Lines that a test sends to a process of its own, which works on until the next one comes."""

from __future__ import annotations

import select


class Told:
    """Standard input without a buffer: a line that comes together with the one before it would lie
    in a buffer, where select() does not look, and the process would work on for ever."""

    def __init__(self) -> None:
        self._input = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - as long as it lives

    def line(self) -> str:
        """The next line; empty when the test has closed its end."""
        return self._input.readline().decode()

    def has_more(self) -> bool:
        """Whether a line is waiting, or the end."""
        return bool(select.select([self._input], [], [], 0)[0])
