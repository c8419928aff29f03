# SPDX-License-Identifier: BSD-2-Clause
"""What all tests share. The modules beside this file (captures, needs) import by their name."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from lost_guests import LAB, pytest_runtest_protocol, pytest_terminal_summary
from needs import needs

__all__ = ["pytest_runtest_protocol", "pytest_terminal_summary"]  # hooks

if TYPE_CHECKING:
    from livedma.lab.guest import Lab

# Machines that run this are small and noisy: a slow example is no failure. CI tries the same
# examples each time, so that a change is judged by what it changes; elsewhere they are new ones.
settings.register_profile(
    "livedma",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("livedma")

# A shell starts what runs in its background with SIGINT ignored, and every process would inherit
# that: tests press Ctrl-C on those that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that ask for guests: tests/parts.py runs these beside the others."""
    for item in items:
        if "guests" in getattr(item, "fixturenames", ()):
            item.add_marker("guest")


@pytest.fixture(scope="session")
def bpf() -> None:
    """Needs the privilege to load BPF programs and to make namespaces."""
    needs(os.geteuid() == 0, "BPF programs and namespaces need root")
    from livedma._native.bpf import CaptureSession

    try:
        CaptureSession(rx=True, tx=False).close()
    except OSError as error:
        needs(False, f"BPF programs cannot be loaded: {error}")


@pytest.fixture(scope="session")
def tracefs() -> None:
    """Needs the kernel's tracepoints. It stays mounted: others may use it by then."""
    needs(os.geteuid() == 0, "tracepoints need root")
    place = Path("/sys/kernel/tracing")
    if not (place / "events").is_dir():
        argv = ["mount", "-t", "tracefs", "none", str(place)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        needs(done.returncode == 0, f"tracefs cannot be mounted: {done.stderr.strip()}")


@pytest.fixture(scope="session")
def guests(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Guests a and b with a real kernel, and the host between them; the first time takes a minute.

    They are shared: a test leaves no servers, mounts or addresses behind that would hurt others.
    """
    needs(os.geteuid() == 0, "guests and their network need root")
    from livedma.errors import LabError
    from livedma.lab import image
    from livedma.lab.guest import Lab

    for name in ("qemu-system-x86_64", "zstd", *(() if image.cached() else ("mmdebstrap",))):
        try:
            image.tool(name)
        except LabError as error:
            needs(False, str(error))
    with Lab(say=print) as lab:
        request.session.stash[LAB] = lab
        yield lab
        del request.session.stash[LAB]
