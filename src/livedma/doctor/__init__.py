"""What this machine can do for the device, what the rest costs and how to change it."""

from livedma.doctor.addresses import addresses
from livedma.doctor.finding import Finding
from livedma.doctor.system import system

__all__ = ["Finding", "can_run", "examine"]


def examine() -> list[Finding]:
    """Tries and reads; changes nothing."""
    return [*system(), *addresses()]


def can_run(findings: list[Finding]) -> bool:
    """Whether a device can be opened at one address at least."""
    return not any(finding.state == "stops" for finding in findings) and any(
        finding.facts.get("is_free") for finding in findings
    )
