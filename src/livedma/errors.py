# SPDX-License-Identifier: BSD-2-Clause
"""livedma raises these exceptions. The text of each is one sentence for people."""


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
