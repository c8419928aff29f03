"""The demo, as it is run: it ends by itself and tells the truth about what it did."""

from __future__ import annotations

import subprocess

import pytest

from livedma.lab.conversation import conversation

pytestmark = pytest.mark.slow


def test_demo_shows_the_loss_and_captures_everything(bpf: None) -> None:
    run = subprocess.run(
        ["livedma", "demo"], check=True, capture_output=True, text=True, timeout=120
    )
    sent = sum(not step.is_lost for step in conversation("10.80.0.1", "10.80.0.2"))
    assert f"{sent} packets sent, 0 lost by the capture" in run.stdout
    assert run.stdout.count("icrc ok") == sent
    assert "1 WRITE packet lost, recovered by NAK" in run.stdout
    assert "receiver not ready 1 time, then accepted" in run.stdout
    last = run.stdout.splitlines()[-1]
    assert last == "100,000 sent, 100,000 arrived, 100,000 captured, 0 lost by the capture"
    assert not run.stderr
