# SPDX-License-Identifier: BSD-2-Clause
"""Says in one line of plain words what happened on a connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from livedma.wire.words import amount

if TYPE_CHECKING:
    from livedma._native.flow import Half

_NOUNS = {
    "UNKNOWN": "packet",
    "SEND": "SEND packet",
    "WRITE": "WRITE packet",
    "READ": "READ request",
    "READ_RESPONSE": "READ response packet",
    "ATOMIC_ACK": "atomic response",
    "ACK": "ACK",
}
_RESPONSES = {"READ_RESPONSE", "ATOMIC_ACK"}


def lost_packets(half: Half, peer: Half | None) -> dict[str, int]:
    """Returns the lost packets by operation, including those that only the end of the capture
    proves lost.
    """
    lost = dict(half["lost"])
    if half["is_lost_at_end"]:
        operation = half["open_operation"]
        lost[operation] = lost.get(operation, 0) + 1
    if half["missing"] and (peer is not None or half["transport"] == "UC"):
        lost["UNKNOWN"] = lost.get("UNKNOWN", 0) + half["missing"]
    return lost


def missed_by_capture(half: Half, peer: Half | None) -> int:
    """Returns the number of packets that are not in the capture although they arrived."""
    open_ones = 0 if peer is not None or half["transport"] == "UC" else half["missing"]
    return half["not_captured"] + open_ones


def verdict(halves: list[tuple[Half, Half | None]]) -> str:
    """Returns one line about a connection. `halves` are its directions, each with its peer."""
    told: list[str] = []
    for half, peer in halves:
        told += _refusals(half, peer)
    for half, peer in halves:
        told += _losses(half, peer)
    corrupt = sum(half["icrc_errors"] for half, _ in halves)
    if corrupt:
        told.append(f"{amount(corrupt, 'packet')} with a wrong ICRC")
    missed = sum(missed_by_capture(half, peer) for half, peer in halves)
    if missed:
        told.append(f"the capture missed {amount(missed, 'packet')} that arrived")
    crossed = sum(half["crossed"] for half, _ in halves)
    if crossed:
        told += [] if told else ["nothing lost"]
        told.append(f"repeated {amount(crossed, 'time')} while the answer was on its way")
    if not told and halves[0][0]["transport"] == "UD":
        told.append("datagrams: nothing tells whether they arrived")
    if not told:
        repeated = sum(half["retransmitted"] for half, _ in halves)
        told.append(f"nothing lost, {repeated} sent again" if repeated else "nothing lost")
    half, peer = halves[0]
    if half["transport"] in ("RC", "XRC") and peer is None and not half["is_unanswered"]:
        told.append("one direction only in the capture")
    if any(half["starts_inside"] for half, _ in halves):
        told.insert(0, "middle of a connection")
    return "; ".join(told)


def _duration(ns: int) -> str:
    if ns >= 1_000_000_000:
        return f"{ns / 1e9:.1f} s"
    if ns >= 1_000_000:
        return f"{ns / 1e6:.0f} ms"
    return f"{ns / 1e3:.0f} us"


def _list(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _refusals(half: Half, peer: Half | None) -> list[str]:
    told = []
    if peer is not None and peer["rnr_naks"]:
        times = amount(peer["rnr_naks"], "time")
        if not half["is_rnr_pending"]:
            told.append(f"receiver not ready {times}, then accepted")
        elif half["is_closed"]:
            told.append(f"receiver not ready {times}: gave up")
        else:
            told.append(f"receiver not ready {times}, not tried again in the capture")
    elif peer is None and half["rnr_naks"]:
        told.append(f"receiver not ready {amount(half['rnr_naks'], 'time')}")
    if half["fatal_nak"]:
        told.append(f"{half['fatal_nak']}: the connection was broken off")
    if half["is_unanswered"]:
        sent = f"{half['open_operation']} sent {half['attempts']} times"
        if half["is_lost_at_end"]:
            told.append(f"retries exhausted: {sent}, never acknowledged")
        else:
            told.append(f"{sent}, not acknowledged by the end of the capture")
    return told


def _losses(half: Half, peer: Half | None) -> list[str]:
    lost = lost_packets(half, peer)
    if half["is_unanswered"]:
        # The line about the retries says it already.
        operation = half["open_operation"]
        lost[operation] = lost.get(operation, 0) - half["attempts"] + (not half["is_lost_at_end"])
    lost = {operation: n for operation, n in lost.items() if n > 0}
    if not lost:
        return []
    what = _list(
        amount(n, _NOUNS.get(operation, f"{operation} request")) for operation, n in lost.items()
    )
    return [f"{what} lost{_recovery(half, lost)}"]


def _recovery(half: Half, lost: dict[str, int]) -> str:
    if half["transport"] == "UC":
        return " for good: UC repeats nothing"
    if half["missing"] and not half["retransmitted"]:
        return ""
    wait = _duration(half["timeout_ns"])
    if half["timeouts"] and half["recovered_by_nak"]:
        return f", recovered by NAK and by repetition after up to {wait}"
    if half["recovered_by_nak"]:
        return ", recovered by NAK"
    if not half["timeouts"]:
        return ", sent again"
    up_to = "a timeout of" if half["timeouts"] == 1 else "timeouts of up to"
    if set(lost) <= _RESPONSES:
        return f", asked for again after {wait if half['timeouts'] == 1 else 'up to ' + wait}"
    if set(lost) == {"ACK"}:
        return f", {half['open_operation']} repeated after {up_to} {wait}"
    return f", repeated after {up_to} {wait}"
