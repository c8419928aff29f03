# SPDX-License-Identifier: BSD-2-Clause
"""Tells the version of livedma and the commit that it was built from."""

from __future__ import annotations

__all__ = ["commit", "version"]


def version() -> str:
    """Returns the version of the installed package, such as 0.3.0."""
    from importlib.metadata import version as installed

    return installed("livedma")


def commit() -> str | None:
    """Returns the commit that the package was built from; None: the build did not know it."""
    from importlib.resources import files

    try:
        text = files("livedma").joinpath("commit").read_text().strip()
    except OSError:
        return None
    return None if text in ("", "unknown") else text
