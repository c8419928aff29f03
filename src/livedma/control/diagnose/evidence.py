"""The figures of a diagnosis by name, and in words."""

from __future__ import annotations

from livedma.control.figures import Figures
from livedma.control.words import duration

__all__ = ["evidence_of", "rest", "took"]


def evidence_of(figures: Figures) -> dict[str, float]:
    """By names that end in their unit; what nobody could know is left out."""
    connection, inside = figures.connection, figures.connection.inside
    found = {
        "operations_per_s": figures.operations_per_s,
        "bytes_per_s": figures.bytes_per_s,
        "latency_ms": figures.latency_s * 1e3,
        "p99_ms": figures.p99_s * 1e3,
        "in_progress_calls": figures.in_progress,
        "granted_credits": connection.credits_granted,
        "sent_again_per_call": figures.sent_again,
        "stalled_part": figures.stalled,
        "short_of_slots_sessions": figures.sessions_short,
    }
    if figures.cpu_busy is not None:
        found["cpu_busy_part"] = figures.cpu_busy
    if inside is not None:
        found |= {
            "buffers": inside.buffers,
            "taken_buffers": figures.memory.taken,
            "moving_buffers": figures.moving,
            "memory_waiting_calls": figures.memory.waiting,
            "memory_wait_ms": figures.memory.wait_s * 1e3,
            "storage_accesses": figures.store.inside,
            "storage_queued_accesses": figures.store.queued,
            "storage_ms": figures.store.time_s * 1e3,
            "send_stalled_part": figures.send_stalled,
            "room_bytes": inside.room_bytes,
        }
    return found


def rest(figures: Figures) -> str:
    """What else there is in a call's time."""
    parts = []
    if figures.store.time_s:
        parts.append(f"storage {took(figures.store.time_s)}")
    if figures.cpu_busy is not None:
        parts.append(f"CPU {figures.cpu_busy:.0%}")
    granted = figures.connection.credits_granted
    parts.append(f"{min(granted, figures.in_progress):.0f} of {granted} credits")
    return ", ".join(parts)


def took(seconds: float) -> str:
    return duration(1e9 * seconds)
