# SPDX-License-Identifier: BSD-2-Clause
"""Gives the figures of a diagnosis by name, and in words."""

from __future__ import annotations

from livedma.control.diagnose.figures import Figures
from livedma.control.words import duration
from livedma.wire.words import amount

__all__ = ["evidence_of", "rest", "took", "used"]


def evidence_of(figures: Figures) -> dict[str, float]:
    """Returns the figures by names that end in their unit. Figures that no source can know are left
    out.
    """
    connection, inside = figures.connection, figures.connection.inside
    found = {
        "operations_per_s": figures.operations_per_s,
        "bytes_per_s": figures.bytes_per_s,
        "latency_ms": figures.latency_s * 1e3,
        "p99_ms": figures.p99_s * 1e3,
        "in_progress_calls": figures.in_progress,
        "sent_again_per_call": figures.sent_again,
        "stalled_part": figures.stalled,
        "short_of_slots_sessions": figures.sessions_short,
    }
    if not connection.is_tcp:
        found["granted_credits"] = connection.credits_granted
    if figures.cpu_busy is not None:
        found["cpu_busy_part"] = figures.cpu_busy
    if connection.tcp is not None:
        found |= {
            "thread_waiting_calls": figures.thread_waiting,
            "storage_accesses": figures.store.inside,
            "storage_ms": figures.store.time_s * 1e3,
            "unsent_bytes": connection.tcp.unsent_bytes,
        }
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
    """Returns in words what else is known of calls that wait for something."""
    store = figures.store.time_s
    return ", ".join([*([f"storage {took(store)}"] if store else []), used(figures)])


def used(figures: Figures) -> str:
    """Returns in words how much of the CPU and of the credits is in use."""
    parts = []
    if figures.cpu_busy is not None:
        parts.append(f"CPU {figures.cpu_busy:.0%}")
    granted = figures.connection.credits_granted
    if figures.connection.is_tcp:
        parts.append(f"{amount(figures.in_progress, 'call')} at a time")
    else:
        parts.append(f"{min(granted, figures.in_progress):.0f} of {granted} credits")
    return ", ".join(parts)


def took(seconds: float) -> str:
    return duration(1e9 * seconds)
