# SPDX-License-Identifier: BSD-2-Clause
"""Serves POST /do/...: the actions of people, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import orjson
from aiohttp import hdrs, web

from livedma.control.act.by_hand import ByHand
from livedma.errors import LivedmaError
from livedma.ui.web.answers import error, json

__all__ = ["Actions"]

_WAITING_MOST = 4
_PATIENCE_S = 20.0  # less than a request's


class Actions:
    """Handles actions. executor: runs them, one at a time."""

    def __init__(self, by_hand: ByHand, executor: Executor) -> None:
        self._executor = executor
        self._waiting = 0
        #: By name: the keys of the body, and the function that takes their values.
        self._actions: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
            "extend": (("connection", "bytes"), by_hand.extend),
            "shrink": (("connection", "bytes"), by_hand.shrink),
            "policy": (("name",), by_hand.set_policy),
        }

    async def handle(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._actions:
            return error(404, f"there is no {name!r}: one of {', '.join(self._actions)}")
        if request.content_type != "application/json":
            return error(415, "an action comes as application/json")
        keys, act = self._actions[name]
        body = _object(await request.read())
        if body is None or body.keys() != {*keys}:
            return error(400, f"{name} takes an object with {' and '.join(keys)}")
        if self._waiting >= _WAITING_MOST:
            return error(503, "others are acting: ask again", {hdrs.RETRY_AFTER: "1"})
        return await self._do(act, [body[key] for key in keys])

    async def _do(self, act: Callable[..., str], values: list[Any]) -> web.Response:
        self._waiting += 1
        work = asyncio.get_running_loop().run_in_executor(self._executor, act, *values)
        work.add_done_callback(self._done)
        try:
            # It is done even if the client no longer waits for the answer.
            async with asyncio.timeout(_PATIENCE_S):
                return json({"ok": await asyncio.shield(work)})
        except TimeoutError:
            return error(504, f"it was not done after {_PATIENCE_S:g} s, and may be yet")
        except (ValueError, TypeError) as refusal:
            return error(400, str(refusal))
        except (LivedmaError, OSError) as refusal:
            return error(409, str(refusal))

    def _done(self, work: asyncio.Future[str]) -> None:
        self._waiting -= 1
        if not work.cancelled():
            work.exception()  # the request has raised it, or the client has left


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
