# SPDX-License-Identifier: BSD-2-Clause
"""The limit and the peers of RDMA over sockets: what is run, and what their output says.

All of them give the same three figures: bytes/s of writes of 1 MiB, writes of 4 KiB a second, and
the nanoseconds that 64 bytes take one way (half of the median round trip).
"""

from __future__ import annotations

import re
from typing import Protocol

from bench.pair import Link, run_pair

MIB = 1 << 20
_PORT = 24791
_WRITES, _SMALL_WRITES, _PINGS = 1000, 50_000, 20_000
_LIMIT_S = "0.4"


class Contestant(Protocol):
    def write_bandwidth(self, link: Link) -> float: ...
    def write_rate(self, link: Link) -> float: ...
    def latency(self, link: Link) -> float: ...


def number_before(unit: str, text: str) -> float:
    """1000 for 'bytes/s' in '1000 bytes/s 10 messages/s'."""
    found = re.search(rf"(\d+) {re.escape(unit)}", text)
    if not found:
        raise ValueError(f"no {unit} in {text!r}")
    return float(found[1])


def ucx_columns(text: str) -> dict[str, float]:
    """The last row of ucx_perftest's CSV by its heading's names; warnings may precede either."""
    rows = [line.strip().split(",") for line in text.splitlines() if line.count(",") >= 7]
    if len(rows) < 2:
        raise ValueError(f"no figures in {text!r}")
    return dict(zip(rows[0], map(float, rows[-1]), strict=True))


class UdpLimit:
    """A bare loop; not a peer, since it gives no reliability, no memory protection, no API."""

    def __init__(self, binary: str) -> None:
        self._binary = binary

    def _run(self, link: Link, role: str) -> str:
        where = (link.address, str(_PORT))
        server, client = [self._binary, "serve", *where], [self._binary, role, *where, _LIMIT_S]
        return run_pair(link, server, client, ("udp", _PORT))

    def write_bandwidth(self, link: Link) -> float:
        return number_before("bytes/s", self._run(link, "stream"))

    def write_rate(self, link: Link) -> float:
        return number_before("messages/s", self._run(link, "stream"))

    def latency(self, link: Link) -> float:
        roles = ("connected", "unconnected")
        return min(number_before("ns one way", self._run(link, role)) for role in roles)


class Libfabric:
    """RMA writes and messages of `tcp;ofi_rxm`."""

    def __init__(self, binary: str) -> None:
        self._binary = binary

    def _run(self, link: Link, role: str, *figures: int) -> str:
        where = (link.address, str(_PORT))
        client = [self._binary, role, *where, *map(str, figures)]
        return run_pair(link, [self._binary, "serve", *where], client, ("tcp", _PORT))

    def write_bandwidth(self, link: Link) -> float:
        return number_before("bytes/s", self._run(link, "write", MIB, _WRITES))

    def write_rate(self, link: Link) -> float:
        return number_before("messages/s", self._run(link, "write", 4096, _SMALL_WRITES))

    def latency(self, link: Link) -> float:
        return number_before("ns one way", self._run(link, "pingpong", _PINGS))


class Ucx:
    """ucx_perftest over tcp. Its megabytes are 2^20 bytes, its times microseconds one way."""

    def _run(self, link: Link, test: str, size: int, count: int) -> dict[str, float]:
        port = ("-p", str(_PORT))
        what = ("-t", test, "-s", str(size), "-n", str(count), "-w", str(count // 10), "-f", "-v")
        env = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": link.iface}
        client = ["ucx_perftest", link.address, *port, *what]
        text = run_pair(link, ["ucx_perftest", *port], client, ("tcp", _PORT), env)
        return ucx_columns(text)

    def write_bandwidth(self, link: Link) -> float:
        return self._run(link, "ucp_put_bw", MIB, _WRITES)["overall_bw"] * MIB

    def write_rate(self, link: Link) -> float:
        return self._run(link, "ucp_put_bw", 4096, _SMALL_WRITES)["overall_mr"]

    def latency(self, link: Link) -> float:
        return self._run(link, "tag_lat", 64, _PINGS)["50.0_percentile_lat"] * 1000
