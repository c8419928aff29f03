# SPDX-License-Identifier: BSD-2-Clause
"""An OCI image of livedma out of its wheel: Debian with Python, and livedma in a venv of its own.

    python packaging/image.py WHEEL ARCHIVE [--root DIR] [--wheels DIR]

--root: a Debian root that has python3 and python3-venv; without it mmdebstrap makes one. --wheels:
where the packages are that livedma depends on, if pip is to ask no index. Needs root, like all that
makes other users' files.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from oci import write_archive

SUITE, PYTHON, GLIBC = "bookworm", "3.11", 36
EXTRAS = "web,top"
_VENV = "/opt/livedma"
_PACKAGES = "python3,python3-venv"
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_EMPTIED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "tmp", "root/.cache")
_CONFIG = {
    "Entrypoint": [f"{_VENV}/bin/livedma"],
    "Cmd": ["--help"],
    "Env": [f"PATH={_VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"],
    # NFS over TCP, the page, and RoCEv2 (the RDMA port is an RDMA service's, not a port of IP)
    "ExposedPorts": {"2049/tcp": {}, "20080/tcp": {}, "4791/udp": {}},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--wheels", type=Path)
    args = parser.parse_args()
    if os.geteuid():
        print("making an image needs root: sudo make image", file=sys.stderr)
        return 1
    if args.root is None and shutil.which("mmdebstrap") is None:
        print("making an image needs mmdebstrap: apt install mmdebstrap", file=sys.stderr)
        return 1
    version = args.wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="livedma-image-", dir=_work_directory()) as work:
        root = Path(work) / "root"
        if args.root is None:
            _bootstrap(root)
        else:
            subprocess.run(["cp", "-a", "--", args.root, root], check=True)
        _install(root, args.wheel, Path(work) / "wheels", args.wheels)
        labels = {
            "org.opencontainers.image.title": "livedma",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "BSD-2-Clause AND (GPL-2.0-only OR BSD-2-Clause)",
        }
        write_archive(
            root,
            args.archive,
            name=f"livedma:{version}",
            config={**_CONFIG, "Labels": labels},
            epoch_s=int(os.environ.get("SOURCE_DATE_EPOCH", args.wheel.stat().st_mtime)),
        )
    print(f"{args.archive}: {args.archive.stat().st_size / 1e6:.0f} MB")
    return 0


def _work_directory() -> str:
    """Where a whole system has room: /tmp is small on many machines."""
    return os.environ.get("TMPDIR", "/var/tmp")


def _bootstrap(root: Path) -> None:
    """In namespaces of its own: if it is killed, its children and its mounts go, too."""
    argv = ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "mmdebstrap"]
    argv += ["--variant=minbase", "--mode=root", "--format=directory", "--quiet"]
    argv += ['--aptopt=Apt::Install-Recommends "false"', f"--include={_PACKAGES}"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    subprocess.run([*argv, SUITE, root, *_sources()], check=True)


def _sources() -> list[str]:
    """The files in which this machine's apt finds Debian, or else mmdebstrap's own choice."""
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]
    return [
        str(path)
        for path in files
        if path.suffix in (".list", ".sources")
        and path.is_file()
        and re.search(rf"\b{SUITE}\b", path.read_text())
    ]


def _install(root: Path, wheel: Path, wheels: Path, known: Path | None) -> None:
    """This machine's pip downloads, and the image's pip installs, which so needs no network."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    pip += ["--only-binary", ":all:", "--python-version", PYTHON, "--dest", str(wheels)]
    pip += [f"--platform=manylinux_2_{one}_x86_64" for one in range(GLIBC, 16, -1)]
    pip += [] if known is None else ["--no-index", "--find-links", str(known)]
    subprocess.run([*pip, f"{wheel}[{EXTRAS}]"], check=True)
    inside = root / "mnt" / "wheels"
    shutil.copytree(wheels, inside)
    try:
        _inside(root, "python3", "-m", "venv", _VENV)
        _inside(
            root,
            *(f"{_VENV}/bin/pip", "--disable-pip-version-check", "install", "-q", "--no-index"),
            *("--find-links", "/mnt/wheels", f"livedma[{EXTRAS}]"),
        )
    finally:
        shutil.rmtree(inside)
    for name in _EMPTIED:
        for path in (root / name).glob("*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _inside(root: Path, *argv: str) -> None:
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    subprocess.run(["env", "-i", path, "LC_ALL=C.UTF-8", "chroot", root, *argv], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
