# SPDX-License-Identifier: BSD-2-Clause
"""Builds the guests' kernel and root file system once from Debian's packages, and caches them.

The cache is $LIVEDMA_CACHE or ~/.cache/livedma. An image lies in guest-<hash>, where the hash is
that of the recipe: this file, packages.py and what is put into the guest. Needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from livedma.errors import LabError, PrivilegeError
from livedma.lab import packages

__all__ = ["Image", "build", "cache_directory", "cached", "tool"]

SUITE = "bookworm"
PACKAGES = (
    *("rdma-core", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest"),
    *("python3-minimal", "python3-pyverbs"),
    *("nfs-common", "nfs-kernel-server", "nvme-cli", "fio"),
    *("iproute2", "iputils-ping", "ethtool", "iptables", "kmod", "procps", "psmisc"),
    "busybox-static",
)
#: What of the kernel's modules the guests get: these directories, and files that start so.
MODULES = (
    *("arch/x86/crypto", "block", "crypto", "fs", "lib", "net"),
    *("drivers/infiniband", "drivers/nvme", "drivers/block", "drivers/virtio", "drivers/char"),
    *("drivers/net/virtio_net", "drivers/net/net_failover", "drivers/net/dummy"),
    *("drivers/net/veth", "drivers/net/ifb", "drivers/net/vxlan", "drivers/net/bonding"),
)
#: What reaches the root file system.
EARLY_MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "overlay")
ROOT_BYTES = 2 << 30

_GUEST_FILES = Path(__file__).with_name("guest")
_PACKAGE_OF = {
    "mmdebstrap": "mmdebstrap",
    "mkfs.ext4": "e2fsprogs",
    "depmod": "kmod",
    "modprobe": "kmod",
    "qemu-system-x86_64": "qemu-system-x86",
    "zstd": "zstd",
    "nsenter": "util-linux",
}
_BUILD_LIMIT_S = 900
_ALONE = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"),
)
_UNUSED_S = 14 * 86400  # an image of another recipe goes when it was not used for so long
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_KERNEL = re.compile(r"6\.12\.(\d+)\+deb12-amd64")

# The image stays read-only and is shared by all guests. What a guest writes goes to its memory, so
# that a snapshot of the memory is the whole guest. NFS exports of an overlay need the two options.
_EARLY_INIT = """#!/bin/sh
mount -t devtmpfs dev /dev
{insmods}
mount -t ext4 -o ro,noload /dev/vda /ro || exec sh
mount -t tmpfs -o size=60% rw /rw
mkdir /rw/upper /rw/work
layers=lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work
mount -t overlay -o $layers,index=on,nfs_export=on root /mnt || exec sh
mount -o move /dev /mnt/dev
exec switch_root /mnt /lab/init
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """Names the files of a built image."""

    directory: Path

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd.gz"

    @property
    def root(self) -> Path:
        return self.directory / "root.ext4"

    @property
    def kernel_version(self) -> str:
        return str(json.loads((self.directory / "image.json").read_text())["kernel"])


def cache_directory() -> Path:
    given = os.environ.get("LIVEDMA_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "livedma"


def recipe_hash() -> str:
    digest = hashlib.sha256()
    recipe = (Path(__file__), Path(packages.__file__))
    for path in (*recipe, *sorted(p for p in _GUEST_FILES.iterdir() if p.is_file())):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cached() -> Image | None:
    """Returns the image of this recipe, if it has been built."""
    directory = cache_directory() / f"guest-{recipe_hash()}"
    return Image(directory) if (directory / "image.json").exists() else None


def tool(name: str) -> str:
    """Returns the path of a program that the lab needs; LabError says which package has it."""
    # Some users' PATH is without the administrator's programs.
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise LabError(f"{name} is missing: apt install {_PACKAGE_OF[name]}")
    return path


def build(say: Say = lambda sentence: None) -> Image:
    """Returns the image of this recipe, and builds it unless it is cached. Two builders wait for
    each other."""
    found = cached()
    if found is not None:
        with contextlib.suppress(PermissionError):
            os.utime(found.directory)
        return found
    if os.geteuid():
        raise PrivilegeError("building the guests' image needs root")
    for name in ("mmdebstrap", "mkfs.ext4", "depmod", "modprobe"):
        tool(name)
    final = cache_directory() / f"guest-{recipe_hash()}"
    with _locked(final.with_suffix(".lock"), say):
        found = cached()  # built by the process that had the lock
        if found is not None:
            return found
        for left_over in final.parent.glob(f"{final.name}.tmp-*"):  # a builder was killed
            shutil.rmtree(left_over)
        work = final.with_name(f"{final.name}.tmp-{os.getpid()}")
        work.mkdir()
        try:
            _Build(work, say).run()
            work.rename(final)
            _forget_unused()
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Image(final)


def _forget_unused() -> None:
    for path in cache_directory().glob("guest-*"):
        if path.is_dir() and time.time() - path.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise LabError(f"{path.parent}: {error.strerror}: set LIVEDMA_CACHE") from None
    with file:
        end_s = time.monotonic() + _BUILD_LIMIT_S
        is_told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise LabError(f"another builder has held {path} for too long") from None
            if not is_told:
                say("waiting for another builder of the same image")
                is_told = True
            time.sleep(0.2)
        yield


class _Build:
    """Builds an image, in an empty directory that becomes the image."""

    def __init__(self, work: Path, say: Say) -> None:
        self._work, self._say = work, say
        self._root = work / "root"
        self._start_s = time.monotonic()

    def run(self) -> None:
        self._progress("building the guests' image, once: one to three minutes")
        with ThreadPoolExecutor(1) as pool:
            kernel: Future[tuple[str, Path]] = pool.submit(self._fetch_kernel)
            self._bootstrap()
            version, tree = kernel.result()
        self._progress(f"root file system and kernel {version} are there")
        self._add_modules(version, tree)
        lab = self._root / "lab"
        shutil.copytree(_GUEST_FILES, lab, ignore=shutil.ignore_patterns("__pycache__"))
        for path in lab.iterdir():
            path.chmod(0o755)
        self._make_initrd(version)
        shutil.copyfile(tree / "boot" / f"vmlinuz-{version}", self._work / "vmlinuz")
        self._make_disk()
        for directory in (self._root, tree, self._work / "initrd"):
            shutil.rmtree(directory)
        (self._work / "image.json").write_text(json.dumps({"kernel": version}))
        self._progress("image done")

    def _progress(self, sentence: str) -> None:
        self._say(f"{sentence} ({time.monotonic() - self._start_s:.0f} s)")

    def _fetch_kernel(self) -> tuple[str, Path]:
        """Fetches Debian's newest 6.12 kernel, or else the kernel of its release."""
        tree = self._work / "kernel"
        tree.mkdir()
        return packages.fetch_kernel(_KERNEL, tree), tree

    def _bootstrap(self) -> None:
        options = ["--variant=minbase", "--mode=root", "--format=directory", "--quiet"]
        options += ['--aptopt=Apt::Install-Recommends "false"', f"--include={','.join(PACKAGES)}"]
        options += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        # In namespaces of its own: if it is killed, its children and its mounts go, too.
        packages.output(*_ALONE, tool("mmdebstrap"), *options, SUITE, self._root, *_sources())

    def _add_modules(self, version: str, tree: Path) -> None:
        source = next(p for p in tree.glob(f"**/modules/{version}") if p.is_dir())
        target = self._root / "usr" / "lib" / "modules" / version
        target.mkdir(parents=True)
        for path in source.glob("modules.*"):
            shutil.copy(path, target)
        wanted = [
            path
            for path in (source / "kernel").rglob("*.ko*")
            if str(path.relative_to(source / "kernel")).startswith(MODULES)
        ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda path: _unpack(path, target / path.relative_to(source)), wanted))
        packages.output(tool("depmod"), "-b", self._root, version)

    def _make_initrd(self, version: str) -> None:
        initrd = self._work / "initrd"
        for name in ("bin", "dev", "mnt", "modules", "ro", "rw"):
            (initrd / name).mkdir(parents=True)
        busybox = self._root / "bin" / "busybox"
        shutil.copy(busybox, initrd / "bin")
        for applet in ("sh", "insmod", "mount", "mkdir", "switch_root"):
            (initrd / "bin" / applet).symlink_to("busybox")
        loads: dict[str, None] = {}  # in the order of loading, each once
        for module in EARLY_MODULES:
            needed = packages.output(
                *(tool("modprobe"), "-d", self._root, "-S", version, "--show-depends", module)
            )
            loads |= dict.fromkeys(re.findall(r"^insmod (\S+)", needed, re.MULTILINE))
        for path in loads:
            shutil.copy(path, initrd / "modules")
        insmods = "\n".join(f"insmod /modules/{Path(path).name}" for path in loads)
        (initrd / "init").write_text(_EARLY_INIT.format(insmods=insmods))
        (initrd / "init").chmod(0o755)
        names = "\n".join(str(p.relative_to(initrd)) for p in sorted(initrd.rglob("*")))
        archive = subprocess.run(
            [busybox.resolve(), "cpio", "-o", "-H", "newc"],
            cwd=initrd,
            input=names.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=_BUILD_LIMIT_S,
        )
        (self._work / "initrd.gz").write_bytes(gzip.compress(archive.stdout, 1))

    def _make_disk(self) -> None:
        disk = self._work / "root.ext4"
        with disk.open("wb") as file:
            file.truncate(ROOT_BYTES)
        # It is never written to: no journal, no checksums to verify in emulation.
        features = ("-O", "^has_journal,^metadata_csum,^64bit", "-m", "0")
        packages.output(tool("mkfs.ext4"), "-q", "-F", *features, "-d", self._root, disk)


def _sources() -> list[str]:
    """Lists the files in which this machine's apt finds Debian."""
    suites = {SUITE, f"{SUITE}-security", f"{SUITE}-updates"}
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]
    found = [
        str(path)
        for path in files
        if path.suffix in (".list", ".sources")
        and path.is_file()
        and suites & set(path.read_text().split())
    ]
    if not found:
        raise LabError(f"apt has no source of Debian {SUITE}: add one to /etc/apt/sources.list.d")
    return found


def _unpack(source: Path, target: Path) -> None:
    """Copies a module; a packed one is unpacked, which is slow in an emulated guest."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".xz":
        target.with_suffix("").write_bytes(lzma.decompress(source.read_bytes()))
    else:
        shutil.copy(source, target)
