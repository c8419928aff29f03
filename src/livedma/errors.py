# SPDX-License-Identifier: BSD-2-Clause
"""livedma raises these exceptions. The text of each is one sentence for people."""

from __future__ import annotations

import os
import re

_NUMBER = re.compile(r"\[Errno (\d+)\]")
_ADDED = " (while attempting to bind on address "


def reason(error: OSError) -> str:
    """Returns the system's words for an error of the network, without those that Python adds:
    addresses as it writes them, and a list of one error for each address of a name.
    """
    found = _NUMBER.search(str(error)) if error.errno is None else None
    number = int(found[1]) if found else error.errno or 0
    if number > 0:
        return os.strerror(number)
    return (error.strerror or str(error)).partition(_ADDED)[0]


class LivedmaError(Exception):
    """All exceptions of livedma derive from it."""


class CaptureFileError(LivedmaError):
    """A capture file cannot be opened, is not a capture file, or breaks off."""


class CaptureError(LivedmaError):
    """A live capture cannot start or go on."""


class PrivilegeError(LivedmaError):
    """Something needs root. The text says what; commands add the line that runs it again."""


class LabError(LivedmaError):
    """A guest cannot be built, started or talked to."""


class PortInUseError(LivedmaError):
    """The port is in use already."""


class NoRoomError(LivedmaError):
    """A window, a pool or the address space for DMA has no room left."""


class InUseError(LivedmaError, TimeoutError):
    """Memory was to be given back, but this process still used it when time was up."""


class BudgetError(LivedmaError):
    """A budget for DMA memory would be exceeded; nothing was charged."""


class LimitError(LivedmaError):
    """A limit of the system on locked memory would be exceeded; nothing was charged."""
