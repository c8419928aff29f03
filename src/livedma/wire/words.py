"""Numbers in sentences."""

__all__ = ["amount"]


def amount(count: int, thing: str) -> str:
    """`1 packet`, `12,430 packets`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
