# SPDX-License-Identifier: BSD-2-Clause
"""Writes numbers for sentences."""

__all__ = ["amount"]


def amount(count: float, thing: str) -> str:
    """Writes `1 packet`, `12,430 packets`; a mean is rounded."""
    return f"{count:,.0f} {thing}{'' if round(count) == 1 else 's'}"
