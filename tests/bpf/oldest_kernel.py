# SPDX-License-Identifier: BSD-2-Clause
"""Debian 12's own kernel in a guest that has nothing but a loader of BPF programs."""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from livedma.lab import image, packages

_KERNEL = re.compile(r"6\.1\.0-(\d+)-cloud-amd64")
_LOADER = Path(__file__).with_name("load_programs.c")
_LIMIT_S = 300
_REGULAR = 0o100755


def kernel() -> Path:
    """Fetched once, and kept where guests' images are."""
    found = image.cache_directory() / "linux-6.1-cloud"
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as name:
            version = packages.fetch_kernel(_KERNEL, Path(name))
            assert version.startswith("6.1."), version
            Path(name, "boot", f"vmlinuz-{version}").rename(found)
    return found


def _archive(files: Mapping[str, bytes]) -> bytes:
    """As the kernel unpacks it: cpio, "newc"."""
    made = b""
    for number, (name, data) in enumerate([*files.items(), ("TRAILER!!!", b"")], 1):
        path = name.encode() + b"\0"
        mode = _REGULAR if data else 0
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        for part in (b"070701" + b"".join(b"%08X" % one for one in fields) + path, data):
            made += part + bytes(-len(part) % 4)
    return made


def load(objects: list[Path], directory: Path) -> dict[str, str]:
    """What the guest's verifier says of each: "loaded", or why not."""
    loader, initrd = directory / "init", directory / "initrd.gz"
    libraries = ("-lbpf", "-lelf", "-lz")
    packages.output("gcc", "-static", "-O2", "-o", loader, _LOADER, *libraries)
    files = {path.name: path.read_bytes() for path in (loader, *objects)}
    initrd.write_bytes(gzip.compress(_archive(files), 1))
    machine = ("-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "512", "-nographic")
    said = packages.output(
        *("qemu-system-x86_64", *machine, "-no-reboot", "-nic", "none"),
        *("-kernel", kernel(), "-initrd", initrd),
        *("-append", "console=ttyS0 quiet panic=-1"),
        limit_s=_LIMIT_S,
    )
    return dict(re.findall(r"program (\S+)\.bpf\.o: (.*?)\s*$", said, re.MULTILINE))
