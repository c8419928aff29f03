"""Debian 12's own kernel in a guest that has nothing but a loader of BPF programs."""

from __future__ import annotations

import gzip
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from livedma.lab import image

_PACKAGE = re.compile(r"linux-image-6\.1\.0-(\d+)-cloud-amd64")
_LOADER = Path(__file__).with_name("load_programs.c")
_LIMIT_S = 300
_REGULAR = 0o100755


def _output(*argv: str, cwd: Path | None = None) -> str:
    run = subprocess.run(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S
    )
    assert run.returncode == 0, f"{argv}: {run.stderr[-500:]}"
    return run.stdout


def _package() -> str | None:
    names = _output("apt-cache", "pkgnames", "linux-image-6.1.0-").split()
    found = [match for match in map(_PACKAGE.fullmatch, names) if match]
    return max(found, key=lambda match: int(match[1]))[0] if found else None


def kernel() -> Path:
    """Fetched once, and kept where guests' images are."""
    package = _package()
    if package is None:
        _output("apt-get", "-q", "update")
        package = _package()
    assert package is not None, "apt knows no kernel of Debian 12"
    found = image.cache_directory() / package
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as name:
            work = Path(name)
            options = ("-q", "-o", "APT::Sandbox::User=root")
            _output("apt-get", *options, "download", package, cwd=work)
            _output("dpkg-deb", "-x", str(next(work.glob("*.deb"))), name)
            next(work.glob("boot/vmlinuz-*")).rename(found)
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
    _output("gcc", "-static", "-O2", "-o", str(loader), str(_LOADER), *libraries)
    files = {path.name: path.read_bytes() for path in (loader, *objects)}
    initrd.write_bytes(gzip.compress(_archive(files), 1))
    machine = ("-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "512", "-nographic")
    said = _output(
        *("qemu-system-x86_64", *machine, "-no-reboot", "-nic", "none"),
        *("-kernel", str(kernel()), "-initrd", str(initrd)),
        *("-append", "console=ttyS0 quiet panic=-1"),
    )
    return dict(re.findall(r"program (\S+)\.bpf\.o: (.*?)\s*$", said, re.MULTILINE))
