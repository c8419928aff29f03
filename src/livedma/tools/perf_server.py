# SPDX-License-Identifier: BSD-2-Clause
"""Runs the server side of a measurement: it waits for a client and does what that asks for."""

from __future__ import annotations

from collections.abc import Callable

from livedma.errors import LivedmaError
from livedma.rdma import Device, cm
from livedma.tools.perf_control import Control, PeerError
from livedma.tools.perf_plan import Hello, Plan, PlanError, Remote
from livedma.tools.perf_side import Side, supervised

__all__ = ["serve_one"]

_ACCEPT_S = 15.0
_WHY_CHARACTERS = 200  # the client prints no more


def serve_one(
    device: Device,
    listener: cm.Listener,
    spin: float,
    on_plan: Callable[[str, Plan, int], None],
    memory: str = "pinned",
) -> None:
    """Waits for a client and serves its run. on_plan gets the peer, its plan, and the MTU."""
    request, hello = _next_run(listener)
    control = Control(device)
    with _accept(request, control.setup) as connection:
        control.connection = connection
        try:
            message = control.receive("plan")
            plan, remote = Plan.from_message(message), Remote.from_message(message)
        except PlanError as error:
            control.send("failed", why=str(error))
            raise PeerError(f"{connection.peer}: {error}") from None
        try:
            side = Side(device, plan, memory, plan.span)
        except LivedmaError as error:  # such as a limit on memory
            control.send("failed", why=str(error)[:_WHY_CHARACTERS])
            raise
        with side:
            _meet(control, side, listener, hello)
            on_plan(connection.peer, plan, side.connections[0].path_mtu)
            for index, size in enumerate(plan.sizes):
                _one_size(control, side, size, remote, spin, is_first=index == 0)
            control.receive("end")
            control.send("bye")
            connection.wait_disconnected(_ACCEPT_S)


def _next_run(listener: cm.Listener) -> tuple[cm.Request, Hello]:
    while True:
        request = listener.get()
        hello = Hello.parse(request.private_data)
        if hello is not None and hello.number == 0:
            return request, hello
        request.reject(b"a livedma perf of another version, or something else, serves here")


def _accept(request: cm.Request, setup: cm.Setup) -> cm.Connection:
    try:
        return request.accept(timeout=_ACCEPT_S, **setup)
    except TimeoutError:
        raise PeerError(f"{request.peer} asked for a connection and does not confirm it") from None


def _meet(control: Control, side: Side, listener: cm.Listener, hello: Hello) -> None:
    """Lets the client make all connections of this run, one after the other."""
    control.send("memory", **side.remote.as_message())
    for number in range(1, side.plan.qps + 1):
        while True:
            try:
                request = listener.get(_ACCEPT_S)
            except TimeoutError:
                raise PeerError(
                    f"only {number - 1} of the client's {side.plan.qps} connections came"
                ) from None
            if Hello.parse(request.private_data) == Hello(hello.run, number):
                break
            request.reject(b"a measurement is under way: try again later")
        side.add(_accept(request, side.setup))


def _one_size(
    control: Control, side: Side, size: int, remote: Remote, spin: float, is_first: bool
) -> None:
    plan, peer = side.plan, side.connections[0].peer
    begin = control.receive("begin", spin)
    if begin.get("size") != size:
        raise PeerError(f"{peer} is no livedma perf of this version")
    measurement = side.measurement(size, remote, spin)
    if is_first and plan.operation == "send":
        measurement.prepare()
    control.send("ready", tail=side.mark(size))
    if plan.both_send:
        supervised(measurement, lambda: measurement.ping(False), peer, lambda _: None)
    elif plan.operation == "send":
        supervised(measurement, measurement.drain, peer, lambda _: None)
    control.receive("done", spin)
    if plan.operation != "read" and not side.sees(size, str(begin.get("tail"))):
        why = "what arrived is not what was sent"
        control.send("failed", why=why)
        raise LivedmaError(f"{why} by {peer}")
    control.send("checked")
