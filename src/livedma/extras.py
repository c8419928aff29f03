# SPDX-License-Identifier: BSD-2-Clause
"""Knows the packages that only some commands need, and the extra of livedma that brings each.

livedma itself needs orjson alone. Everything else is imported where it is used, and the command
line turns an import that fails there into one sentence, as in `livedma: top needs textual: pip
install 'livedma[top]'`.
"""

from __future__ import annotations

import importlib.util

__all__ = ["EXTRA_OF", "install_line", "is_installed", "require", "sentence"]

#: The extra in pyproject.toml that has a package, by the name that is imported.
EXTRA_OF = {
    "aiohttp": "web",
    "matplotlib": "plots",
    "prometheus_client": "web",
    "pyarrow": "parquet",
    "pyroute2": "lab",
    "rich": "top",  # textual brings it
    "shtab": "completion",
    "textual": "top",
}
_PACKAGE_OF = {"prometheus_client": "prometheus-client", "rich": "textual"}
#: Commands that need several packages have an extra with all of them.
_EXTRA_OF_COMMAND = {"experiment": "experiment"}


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def require(module: str) -> None:
    """Raises what its import would raise, without the time that the import takes."""
    if not is_installed(module):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def install_line(extra: str) -> str:
    return f"pip install 'livedma[{extra}]'"


def sentence(error: ModuleNotFoundError, command: str) -> str | None:
    """Says what the user of `command` has to install. None: the module belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None:
        return None
    extra = _EXTRA_OF_COMMAND.get(command, extra)
    return f"{command} needs {_PACKAGE_OF.get(module, module)}: {install_line(extra)}"
