# SPDX-License-Identifier: BSD-2-Clause
"""Runs the client side of a measurement: it begins, and measures."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from livedma.errors import LivedmaError
from livedma.rdma import Device, cm
from livedma.tools.perf_control import Control, PeerError
from livedma.tools.perf_plan import Hello, Plan, PlanError, Remote
from livedma.tools.perf_report import Bandwidth, Latency
from livedma.tools.perf_side import Side, supervised

__all__ = ["Client"]

_CONNECT_S = 15.0


class Client:
    """Connects with a server and measures, size by size."""

    def __init__(
        self,
        device: Device,
        peer: str,
        port: int,
        plan: Plan,
        *,
        mtu: int | None = None,
        spin: float,
        memory: str = "pinned",
        tick: Callable[[int, int], None],
    ) -> None:
        """Connects to the server. tick is called now and then with the size and the number of
        iterations that are done.
        """
        self._device, self._peer, self._port = device, peer, port
        self._plan, self._wanted_mtu, self._spin, self._tick = plan, mtu, spin, tick
        self._run = secrets.randbits(64)
        self._side = Side(device, plan, memory)
        self._control = Control(device)
        try:
            self._remote = self._meet()
        except BaseException:
            self.close()
            raise

    @property
    def mtu(self) -> int:
        return self._side.connections[0].path_mtu

    def close(self) -> None:
        self._side.close()
        if self._control.connection is not None:
            self._control.connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _meet(self) -> Remote:
        self._control.connection = self._connect(0, self._control.setup)
        here = self._side.remote
        self._control.send("plan", **self._plan.as_message(), **here.as_message())
        answer = self._control.receive("memory")
        for number in range(1, self._plan.qps + 1):
            self._side.add(self._connect(number, self._side.setup))
        try:
            return Remote.from_message(answer)
        except PlanError as error:
            raise PeerError(f"{self._peer}: {error}") from None

    def _connect(self, number: int, setup: cm.Setup) -> cm.Connection:
        try:
            return cm.connect(
                self._device,
                self._peer,
                self._port,
                timeout=_CONNECT_S,
                path_mtu=self._wanted_mtu,
                private_data=Hello(self._run, number).pack(),
                **setup,
            )
        except TimeoutError:
            raise LivedmaError(
                f"{self._peer} does not answer: start `livedma perf {self._plan.test}` there"
            ) from None
        except cm.RejectedError as error:
            why = error.private_data.rstrip(b"\0").decode("ascii", "replace")
            raise LivedmaError(
                f"{self._peer} refuses: {why}"
                if why.isprintable() and why
                else f"no perf server answers at {self._peer} port {self._port}: "
                f"start `livedma perf {self._plan.test}` there"
            ) from None

    def results(self) -> Iterator[Bandwidth | Latency]:
        """Yields each size's result as soon as there is one."""
        for index, size in enumerate(self._plan.sizes):
            yield self._one_size(size, is_first=index == 0)
        self._control.send("end")
        self._control.receive("bye")

    def _one_size(self, size: int, is_first: bool) -> Bandwidth | Latency:
        plan, side = self._plan, self._side
        measurement = side.measurement(size, self._remote, self._spin)
        if is_first and plan.both_send and plan.operation == "send":
            measurement.prepare()
        self._control.send("begin", size=size, tail=side.mark(size))
        tail = self._control.receive("ready", self._spin).get("tail")

        def tick(done: int) -> None:
            self._tick(size, done)

        result: Bandwidth | Latency
        if plan.kind == "bw":
            supervised(measurement, measurement.stream, self._peer, tick)
            result = Bandwidth(size, plan.total, measurement.elapsed_ns, measurement.best_ns)
        else:
            times = supervised(measurement, lambda: measurement.ping(True), self._peer, tick)
            result = Latency(size, times, 1 if plan.operation == "read" else 2)
        self._control.send("done")
        self._control.receive("checked", self._spin)
        if (plan.both_send or plan.operation == "read") and not side.sees(size, str(tail)):
            raise LivedmaError(f"what came from {self._peer} is not what was sent there")
        return result
