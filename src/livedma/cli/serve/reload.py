# SPDX-License-Identifier: BSD-2-Clause
"""Gives a running server another configuration: changes what it can, and drops no session."""

from __future__ import annotations

import argparse
import threading
from typing import Any

from livedma.cli import logs
from livedma.cli.serve.bounds import Duration, Size, WrongUse
from livedma.cli.serve.building import service_options, steering
from livedma.cli.serve.config_file import ConfigError
from livedma.cli.serve.settings import Settings, keys
from livedma.control import words
from livedma.control.running import Controlled
from livedma.nfs.server.service import NfsService

__all__ = ["LIVE", "Reloader"]

#: The keys that a reload changes: at once, or for connections, sessions and calls from now on. The
#: others need a restart: clients rely on them while the server runs, or it used them at its start.
LIVE = frozenset(
    {
        "ahead",
        "allow",
        "anonymous",
        "budget",
        "buffer",
        "credits",
        "dry-run",
        "inline",
        "log-level",
        "mapped",
        "numa",
        "objective-p99",
        "pages",
        "pin-limit",
        "policy",
        "slots",
        "squash",
        "store-delay",
        "store-width",
        "sync",
        "window",
    }
)


class Reloader:
    """Changes a running server by its file. If anything is wrong with the file, nothing changes.

    Each reload names what needs a restart until there is one. The rest changes meanwhile, as a
    restart would change it, too.
    """

    def __init__(self, settings: Settings, service: NfsService, running: Controlled) -> None:
        self._settings = settings
        self._service, self._running = service, running
        self._lock = threading.Lock()

    def reload(self) -> dict[str, Any]:
        """Reads the file again. Raises ConfigError or WrongUse, and changes nothing then."""
        events = self._running.controller.events
        with self._lock:
            try:
                if self._settings.values.config is None:
                    raise WrongUse("there is nothing to read again: it runs without --config")
                changed, waiting = self._change(self._settings.again())
            except (ConfigError, WrongUse) as error:
                text = str(error).replace("\n", "; ")
                events.tell("failed", f"reload: {text}; nothing was changed")
                raise
            text = _told(changed, waiting)
            data = {"changed": changed, "needs_restart": waiting}
            events.tell("reload", f"{self._settings.values.config}: {text}", data=data)
            return {**data, "text": text}

    def _change(self, wanted: Settings) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        now = self._settings.values
        changed, waiting = {}, {}
        effective = dict(vars(now))
        for key, option in keys().items():
            old, new = getattr(now, option.dest), getattr(wanted.values, option.dest)
            if old == new:
                continue
            difference = [_shown(one, option.type) for one in (old, new)]
            if key in LIVE:
                changed[key] = difference
                effective[option.dest] = new
            else:
                waiting[key] = difference
        service_options(wanted.values)  # raises now what a restart would raise
        values = argparse.Namespace(**effective)
        served, steered, before = service_options(values), steering(values), steering(now)
        self._service.change(served)
        self._running.change(steered, before)
        logs.set_level(values.log_level)
        self._settings = Settings(self._settings.words, values)
        return changed, waiting


def _told(changed: dict[str, list[str]], waiting: dict[str, list[str]]) -> str:
    parts = [f"{key} {old} -> {new}" for key, (old, new) in changed.items()]
    text = ", ".join(parts) or "nothing has changed"
    if waiting:
        parts = [f"{key} {old} -> {new}" for key, (old, new) in waiting.items()]
        text += f"; needs a restart: {', '.join(parts)}"
    return text


def _shown(value: Any, kind: Any) -> str:
    """Formats a value as on the command line."""
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"[{' '.join(map(str, value))}]"
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    if isinstance(kind, Size):
        return words.size(value)
    return words.duration(value * 1e9) if isinstance(kind, Duration) else str(value)
