"""What goes wrong, as exceptions whose text is one sentence for people."""


class LivedmaError(Exception):
    """Base of all of them: str() says what went wrong and, where there is a way, what to do."""


class CaptureFileError(LivedmaError):
    """A capture file cannot be opened, is none, or breaks off."""


class CaptureError(LivedmaError):
    """A live capture cannot start or go on."""


class PrivilegeError(LivedmaError):
    """Something needs root: the text says what; commands add the line that runs it again."""


class LabError(LivedmaError):
    """A guest cannot be built, started or talked to."""


class PortInUseError(LivedmaError):
    """Somebody listens there already."""


class NoRoomError(LivedmaError):
    """A window, a pool or the address space for DMA has no room left."""


class InUseError(LivedmaError, TimeoutError):
    """Memory was to be given back, and somebody of this process still used it when time was up."""


class BudgetError(LivedmaError):
    """A budget for DMA memory would be exceeded; nothing was charged."""


class LimitError(LivedmaError):
    """A limit of the system on locked memory would be exceeded; nothing was charged."""
