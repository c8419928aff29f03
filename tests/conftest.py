"""What all tests share. The modules beside this file (captures, needs) import by their name."""

import os

import pytest
from hypothesis import HealthCheck, settings

from needs import needs

# Machines that run this are small and noisy: a slow example is no failure.
settings.register_profile(
    "livedma", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("livedma")


@pytest.fixture(scope="session")
def bpf() -> None:
    """Needs the privilege to load BPF programs and to make namespaces."""
    needs(os.geteuid() == 0, "BPF programs and namespaces need root")
    from livedma._native.bpf import CaptureSession

    try:
        CaptureSession(rx=True, tx=False).close()
    except OSError as error:
        needs(False, f"BPF programs cannot be loaded: {error}")
