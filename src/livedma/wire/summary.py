# SPDX-License-Identifier: BSD-2-Clause
"""Summarizes the connections of a capture, both directions joined, and what happened on them.

`summarize` makes the plain data that `--summary --json` prints, `render` the text for a terminal.
What each number counts is defined in docs/glossary.md.
"""

from __future__ import annotations

from collections import defaultdict
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from livedma.wire.verdict import lost_packets, missed_by_capture, verdict
from livedma.wire.words import amount

if TYPE_CHECKING:
    from livedma._native.flow import FlowTable, Half

Connection = dict[str, Any]
_MANAGEMENT_QP = 1


def summarize(table: FlowTable, not_roce: int = 0) -> dict[str, Any]:
    """Summarizes everything that `table` has seen. `not_roce` frames were left out before."""
    halves = table.flows()
    connections = [_connection(table, *pair) for pair in _pairs(halves)]
    connections.sort(key=_trouble, reverse=True)
    totals = table.totals()
    return {
        "connections": connections,
        "packets": totals["packets"],
        "bytes": totals["bytes"],
        "not_roce": not_roce,
        "errors": totals["errors"],
        "icrc_errors": totals["icrc_errors"],
        "not_tracked": totals["not_tracked"],
        "duration_s": (totals["last_ns"] - totals["first_ns"]) / 1e9,
    }


def render(summary: dict[str, Any]) -> str:
    """Returns the summary as text: one block per connection, those with most trouble first."""
    blocks = [_block(connection) for connection in summary["connections"]]
    total = (
        f"{amount(summary['packets'], 'packet')} in {summary['duration_s']:.3f} s, "
        f"{amount(len(summary['connections']), 'connection')}"
    )
    for key, text in (
        ("not_roce", "frames not RoCE"),
        ("errors", "packets malformed"),
        ("icrc_errors", "with a wrong ICRC"),
        ("not_tracked", "not tracked"),
    ):
        if summary[key]:
            total += f", {summary[key]} {text}"
    return "\n\n".join([*blocks, total]) + "\n"


def _pairs(halves: list[Half]) -> list[tuple[Half, Half | None]]:
    """Pairs both directions of each connection; the one with requests, or the first seen, leads."""
    alone: dict[tuple[str, bytes, bytes], list[Half]] = defaultdict(list)
    pairs: list[tuple[Half, Half | None]] = []
    for half in halves:
        if half["peer"] is not None:
            if half["index"] < half["peer"]:
                pairs.append(_ordered(half, halves[half["peer"]]))
        elif half["transport"] == "UC":
            alone[half["transport"], half["src"], half["dst"]].append(half)
        else:
            pairs.append((half, None))
    # UC has no responses: its directions can be joined only if there is no other candidate.
    while alone:
        (transport, src, dst), there = alone.popitem()
        back = alone.pop((transport, dst, src), [])
        if len(there) == len(back) == 1 and there[0] is not back[0]:
            pairs.append(_ordered(there[0], back[0]))
        else:
            pairs += [(half, None) for half in there + back]
    return pairs


def _ordered(one: Half, other: Half) -> tuple[Half, Half]:
    if bool(one["requests"]) != bool(other["requests"]):
        return (one, other) if one["requests"] else (other, one)
    return (one, other) if one["index"] < other["index"] else (other, one)


def _add(*counts: dict[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for key, n in one.items():
            total[key] = total.get(key, 0) + n
    return total


def _endpoint(address: bytes, qp: int | None) -> str:
    text = str(ip_address(address))
    return text if qp is None else f"{text} QP {qp:#x}"


def _connection(table: FlowTable, half: Half, peer: Half | None) -> Connection:
    both: list[tuple[Half, Half | None]] = [(half, peer)]
    if peer is not None:
        both.append((peer, half))
    ones = [one for one, _ in both]
    first_ns, last_ns = min(h["first_ns"] for h in ones), max(h["last_ns"] for h in ones)
    lost = _add(*(lost_packets(*pair) for pair in both))
    payload = _add(*(one["payload_bytes"] for one in ones))
    other = None if peer is None else peer["index"]
    is_managing = half["transport"] == "UD" and half["dest_qp"] <= _MANAGEMENT_QP
    duration_s = (last_ns - first_ns) / 1e9

    def total(key: str) -> int:
        return sum(one[key] for one in ones)  # type: ignore[literal-required]

    return {
        "a": _endpoint(half["src"], peer["dest_qp"] if peer else None),
        "b": _endpoint(half["dst"], half["dest_qp"]),
        "a_address": str(ip_address(half["src"])),
        "a_qp": peer["dest_qp"] if peer else None,
        "b_address": str(ip_address(half["dst"])),
        "b_qp": half["dest_qp"],
        "transport": half["transport"],
        "is_management": is_managing,
        "joined_by": None if peer is None else _joined_by(half),
        "packets": total("packets"),
        "bytes": total("bytes"),
        "duration_s": duration_s,
        "messages": _add(*(one["messages"] for one in ones)),
        "payload_bytes": payload,
        "goodput_bps": round(sum(payload.values()) * 8 / duration_s) if duration_s else None,
        "retransmitted": total("retransmitted"),
        "duplicates": total("duplicates"),
        "lost": sum(lost.values()),
        "lost_by_operation": lost,
        "lost_unclear": total("lost_unclear"),
        "not_captured": sum(missed_by_capture(*pair) for pair in both),
        "copies": total("copies"),
        "naks": _add(*(one["naks"] for one in ones)),
        "rnr_naks": total("rnr_naks"),
        "timeouts": total("timeouts"),
        "icrc_errors": total("icrc_errors"),
        "cnps": total("cnps"),
        "ecn_marked": total("ecn_marked"),
        "ack_rtt_us": {
            "p50": table.rtt_us(half["index"], other, 500),
            "p99": table.rtt_us(half["index"], other, 990),
        },
        "verdict": verdict(both),
    }


def _joined_by(half: Half) -> str:
    if half["joined_by_cm"]:
        return "CM"
    return "PSN" if half["peer"] is not None else "addresses"


def _trouble(connection: Connection) -> tuple[int, ...]:
    fatal = sum(n for reason, n in connection["naks"].items() if reason != "PSN sequence error")
    return (
        fatal + ("exhausted" in connection["verdict"]) + ("gave up" in connection["verdict"]),
        connection["lost"],
        connection["rnr_naks"] + connection["icrc_errors"],
        connection["retransmitted"],
        not connection["is_management"],
        connection["bytes"],
    )


def _size(n: float, unit: str, step: int) -> str:
    for prefix in ("", "k", "M", "G"):
        if n < step:
            return f"{n:.0f} {prefix}{unit}" if not prefix else f"{n:.1f} {prefix}{unit}"
        n /= step
    return f"{n:.1f} T{unit}"


def _block(c: Connection) -> str:
    arrow = "->" if c["a_qp"] is None else "<->"
    kind = "management" if c["is_management"] else c["transport"]
    packets, size = amount(c["packets"], "packet"), _size(c["bytes"], "B", 1000)
    traffic = f"{packets}, {size} in {c['duration_s']:.3f} s"
    rows = [("traffic", traffic)]
    if c["messages"]:
        rows.append(("messages", ", ".join(_messages(c))))
    if c["goodput_bps"]:
        rows.append(("goodput", _size(c["goodput_bps"], "bit/s", 1000)))
    rtt = c["ack_rtt_us"]
    if rtt["p50"] is not None:
        rows.append(("ACK round trip", f"p50 {rtt['p50']:.1f} us, p99 {rtt['p99']:.1f} us"))
    counted = [
        f"{c[key]} {text}"
        for key, text in (
            ("lost", "lost"),
            ("retransmitted", "sent again"),
            ("duplicates", "received twice"),
            ("icrc_errors", "with a wrong ICRC"),
            ("not_captured", "missed by the capture"),
            ("copies", "captured twice"),
            ("ecn_marked", "marked by congestion"),
            ("cnps", "congestion notifications"),
        )
        if c[key]
    ]
    if counted:
        rows.append(("packets", ", ".join(counted)))
    naks = [f"{n} {reason}" for reason, n in c["naks"].items()]
    if c["rnr_naks"]:
        naks.append(f"{c['rnr_naks']} receiver not ready")
    if naks:
        rows.append(("NAKs", ", ".join(naks)))
    rows.append(("verdict", c["verdict"]))
    lines = [f"{c['a']} {arrow} {c['b']}   {kind}"]
    return "\n".join(lines + [f"  {name:<15} {text}" for name, text in rows])


def _messages(c: Connection) -> list[str]:
    return [
        f"{n} {operation} ({_size(c['payload_bytes'].get(operation, 0), 'B', 1000)})"
        for operation, n in c["messages"].items()
    ]
