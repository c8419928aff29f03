# SPDX-License-Identifier: BSD-2-Clause
"""A clone on its own has the captures that tests read; another directory may take their place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import recorded


def test_a_clone_has_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIVEDMA_PCAPS", raising=False)
    found = recorded.names()
    assert len(found) == len(set(found)) >= 40
    for name in ("rping_rc", "nfs_rdma_v4.2"):  # as it is, and packed
        path = recorded.find(name)
        assert path is not None and path.name == f"{name}.pcap"
        assert path.read_bytes()[:4] == b"\xd4\xc3\xb2\xa1"
    assert recorded.find("nfs_rdma_v4.2") == recorded.find("nfs_rdma_v4.2")
    assert recorded.find("of-nobody") is None


def test_others_take_their_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIVEDMA_PCAPS", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        recorded.names()
    for name in ("rping_rc", "strange"):
        shutil.copy(recorded.BUNDLED / "rc_rnr.pcap", tmp_path / f"{name}.pcap")
    assert recorded.names() == ["rping_rc", "strange"]
    assert recorded.find("rping_rc") == tmp_path / "rping_rc.pcap"
    # Tests that know what happened in a capture still find it.
    assert recorded.find("nvme_rdma") is not None
