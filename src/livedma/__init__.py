# SPDX-License-Identifier: BSD-2-Clause
"""livedma: RDMA storage whose DMA memory grows and shrinks while it is in use.

The names here are those that most programs need. Each is imported from its package when it is first
used, so that `import livedma` takes no time; docs/python.md shows them at work.
"""

TYPE_CHECKING = False  # without the typing module, which takes longer to import than all else here

__all__ = [
    "Client",
    "Control",
    "Device",
    "LivedmaError",
    "Pool",
    "Window",
    "__version__",
    "decode",
]

if TYPE_CHECKING:
    from livedma.errors import LivedmaError
    from livedma.memory import Pool, Window
    from livedma.nfs import Client
    from livedma.nfs.control import Control
    from livedma.rdma import Device
    from livedma.wire import decode

    __version__: str
else:
    _PLACES = {
        "Client": "livedma.nfs",
        "Control": "livedma.nfs.control",
        "Device": "livedma.rdma",
        "LivedmaError": "livedma.errors",
        "Pool": "livedma.memory",
        "Window": "livedma.memory",
        "decode": "livedma.wire",
    }

    def __getattr__(name):
        if name == "__version__":
            from livedma.version import version

            found = version()
        elif name in _PLACES:
            from importlib import import_module

            found = getattr(import_module(_PLACES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found  # from now on without this function
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
