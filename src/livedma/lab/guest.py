# SPDX-License-Identifier: BSD-2-Clause
"""Runs guests with a real kernel in QEMU, and a lab of two of them with a host between. Needs root.

    with Lab() as lab:
        lab.a.run("rdma link").stdout

Everything about a lab is in its directory below /run/livedma: a process with access to that can use
the guests and take the lab down. A lab goes away with the process that made it, however that ends,
unless it is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyroute2 import netns

from livedma.errors import LabError, PrivilegeError
from livedma.lab import image as images
from livedma.lab.channel import PORTS, Command, port_path
from livedma.lab.hosts import Host
from livedma.lab.network import make_network
from livedma.lab.qmp import Monitor

__all__ = ["GUESTS", "LABS", "Guest", "Lab", "remove", "running"]

LABS = Path("/run/livedma")
GUESTS = {"a": 1, "b": 2}  #: name: the last part of its addresses

_BOOT_LIMIT_S = 240.0
_END_LIMIT_S = 10.0
_KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=1 mitigations=off nokaslr random.trust_cpu=on tsc=reliable "
    "no_timer_check net.ifnames=0"
)


class Guest:
    """Controls one guest of a lab, which the lab's directory describes."""

    def __init__(self, directory: Path, name: str, *, mtu: int = 1500, memory_mib: int = 1024):
        self.directory, self.name = directory, name
        self.number = GUESTS[name]
        self.ipv4, self.ipv6 = f"10.77.0.{self.number}", f"fd77::{self.number}"
        self.tap = f"tap{name}"  #: its port of the bridge, in the lab's namespace
        self._mtu, self._memory_mib = mtu, memory_mib

    def __repr__(self) -> str:
        return f"Guest({str(self.directory)!r}, {self.name!r})"

    @property
    def console(self) -> Path:
        """Returns the file with what the kernel and init said."""
        return self.directory / f"{self.name}.console"

    def pid(self) -> int | None:
        """Returns QEMU's process, if it runs."""
        try:
            pid = int((self.directory / f"{self.name}.pid").read_text())
            # Process ids are used again: only the command line proves that this one is QEMU's.
            command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if f"{self.directory / self.name}.qmp".encode() in command_line else None

    def arguments(self, image: images.Image) -> list[str]:
        """Returns QEMU's command line."""
        base = self.directory / self.name
        settings = f"lab.name={self.name} lab.id={self.number} lab.mtu={self._mtu}"
        argv = ["-name", f"livedma-{self.name}", "-M", "q35", "-accel", "tcg,thread=multi"]
        argv += ["-cpu", "max", "-smp", "1", "-m", str(self._memory_mib)]
        argv += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        argv += ["-kernel", str(image.kernel), "-initrd", str(image.initrd)]
        argv += ["-append", f"{_KERNEL_OPTIONS} {settings}"]
        argv += ["-drive", f"file={image.root},format=raw,if=virtio,readonly=on"]
        argv += ["-netdev", f"tap,id=net,ifname={self.tap},script=no,downscript=no"]
        mac = f"52:54:00:77:00:{self.number:02x}"
        argv += ["-device", f"virtio-net-pci,netdev=net,mac={mac},romfile="]
        argv += ["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
        argv += ["-device", "vmgenid,guid=auto"]  # new random numbers after a snapshot
        for number in range(PORTS):
            path = port_path(self.directory, self.name, number)
            argv += ["-chardev", f"socket,id=port{number},path={path},server=on,wait=off"]
            argv += ["-device", f"virtserialport,chardev=port{number},name=lab.{number}"]
        argv += ["-serial", f"file:{self.console}", "-qmp", f"unix:{base}.qmp,server=on,wait=off"]
        return [*argv, "-pidfile", f"{base}.pid"]

    def start(self, image: images.Image, host: Host, snapshot: Path | None = None) -> None:
        """Starts QEMU in the host's namespace; a guest from a snapshot runs when this returns."""
        argv = [images.tool("qemu-system-x86_64"), *self.arguments(image), "-daemonize"]
        if snapshot is not None:
            argv += ["-incoming", "defer"]
            # QEMU would wait for the rest of a damaged snapshot, so it is checked first.
            check = [images.tool("zstd"), "-q", "-t", str(snapshot)]
            if subprocess.run(check, capture_output=True, timeout=60).returncode:
                raise LabError(f"guest {self.name}: {snapshot} is damaged")
        try:
            done = subprocess.run(
                host.command(*argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"guest {self.name}: QEMU did not start in 60 s") from None
        if done.returncode:
            raise LabError(f"guest {self.name}: QEMU did not start: {done.stderr.strip()}")
        if snapshot is not None:
            with Monitor(self.directory / f"{self.name}.qmp") as monitor:
                monitor.load(snapshot)
                monitor.ask("cont")
            self._set_clock()

    def _set_clock(self) -> None:
        """Sets the clock; in a guest from a snapshot it still shows the time of that."""
        self.run(f"date -s @{time.time():.3f}", check=True)

    def wait_ready(self, timeout_s: float = _BOOT_LIMIT_S) -> None:
        """Waits until the guest has booted and its RDMA device is up."""
        end_s = time.monotonic() + timeout_s
        question = "cat /run/lab/problems 2>/dev/null; rdma link show rxe0/1"
        with Command(self.directory, self.name, question) as command:
            while command.status is None:
                command.read(0.5)
                if self.pid() is None:
                    raise LabError(f"guest {self.name} ended while it booted; {self._last_words()}")
                if command.status is None and time.monotonic() > end_s:
                    raise LabError(
                        f"guest {self.name} has not booted in {timeout_s:g} s; {self._last_words()}"
                    )
        if command.status or "state ACTIVE" not in command.text or "failed:" in command.text:
            raise LabError(f"guest {self.name} has no working rxe: {command.text.strip()}")

    def _last_words(self) -> str:
        try:
            lines = self.console.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return "its console ends with: " + (" / ".join(lines[-5:]) or "nothing")

    def run(
        self, command: str, timeout_s: float = 60.0, *, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs a bash command. Kills it and raises LabError if it takes too long.

        check: raises LabError also if its status is not 0.
        """
        with self.command(command) as running:
            done = running.wait(timeout_s)
        if check and done.returncode:
            raise LabError(
                f"guest {self.name}: status {done.returncode} from {command}: "
                f"{(done.stdout + done.stderr)[-500:].strip()}"
            )
        return done

    def command(self, command: str, *, takes_input: bool = False) -> Command:
        """Starts a bash command and returns at once; it ends with the `with` block, if not before.

        Its output is read while the caller waits for it: some 200 kB fit before it waits, too.
        """
        return Command(self.directory, self.name, command, takes_input=takes_input)

    def put(self, data: bytes, path: str) -> None:
        """Writes a file in the guest."""
        with self.command(f"cat > {shlex.quote(path)}", takes_input=True) as command:
            command.write(data)
            command.end_input()
            done = command.wait()
        if done.returncode:
            raise LabError(f"guest {self.name}: {path} cannot be written: {done.stderr.strip()}")

    @property
    def mtu(self) -> int:
        """Returns the MTU of its interface now; rxe uses the largest of 256..4096 that fits."""
        return int(self.run("cat /sys/class/net/eth0/mtu", check=True).stdout)

    @mtu.setter
    def mtu(self, mtu: int) -> None:
        self.run(f"ip link set eth0 mtu {mtu}", check=True)

    def wait_until(self, condition: str, timeout_s: float = 30.0) -> None:
        """Waits until a bash condition holds in the guest."""
        self.run(f"until {condition}; do sleep 0.1; done", timeout_s)

    def save(self, path: Path) -> None:
        """Writes the guest's memory to a file; the guest is stopped meanwhile, and then goes on."""
        with Monitor(self.directory / f"{self.name}.qmp") as monitor:
            monitor.ask("stop")
            try:
                monitor.save(path)
            finally:
                monitor.ask("cont")

    def stop(self) -> None:
        """Ends the guest at once: nothing in it outlives it."""
        end_s = time.monotonic() + _END_LIMIT_S
        while (pid := self.pid()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if time.monotonic() > end_s:
                raise LabError(f"guest {self.name}: process {pid} does not end")
            time.sleep(0.02)


class Lab:
    """Runs guests a and b on a bridge, in a namespace that is itself a host (`host`).

    name: its name below /run/livedma; labs of different names do not touch. keep: it outlives this
    process, until remove(). snapshots: guests start from a cached snapshot, and make one if there
    is none; otherwise they boot.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        mtu: int = 1500,
        memory_mib: int = 1024,
        keep: bool = False,
        snapshots: bool = True,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.name = name or f"{os.getpid()}"
        self.directory = LABS / self.name
        self.host = Host(_namespace(self.directory), "br0", "10.77.0.254", "fd77::254")
        self.a, self.b = (
            Guest(self.directory, guest, mtu=mtu, memory_mib=memory_mib) for guest in GUESTS
        )
        self.guests = (self.a, self.b)
        self._keep, self._snapshots, self._say, self._mtu = keep, snapshots, say, mtu
        self._keeper: subprocess.Popen[bytes] | None = None
        self._image: images.Image | None = None

    def __enter__(self) -> Lab:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when both guests are ready; if that fails, it takes back what was begun."""
        if os.geteuid():
            raise PrivilegeError("guests and their network need root")
        for name in ("qemu-system-x86_64", "zstd", "nsenter"):
            images.tool(name)
        _sweep()
        self._image = images.build(self._say)
        try:
            self.directory.mkdir(parents=True)
        except FileExistsError:
            raise LabError(f"the lab {self.name!r} is up: livedma lab down") from None
        try:
            if not self._keep:
                self._start_keeper()
            make_network(self.host, [guest.tap for guest in self.guests], self._mtu)
            self._start_guests(self._image)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Takes everything away; calling it a second time has no effect."""
        remove(self.directory)
        if self._keeper is not None:
            self._keeper.communicate(timeout=30)
            self._keeper = None

    def _start_keeper(self) -> None:
        me = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        (self.directory / "owner").write_text(json.dumps([os.getpid(), me[_START_TIME]]))
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "livedma.lab.keeper", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not reach it
        )

    def _start_guests(self, image: images.Image) -> None:
        cached = image.directory / "snapshots" / self._snapshot_key(image)
        if self._snapshots and cached.exists():
            self._say("starting the guests from their snapshot")
            try:
                self.restore(cached)
                return
            except LabError as error:
                self._say(f"the snapshot is of no use ({error})")
                shutil.rmtree(cached, ignore_errors=True)
                self._stop_guests()
        self._say(f"booting the guests, Linux {image.kernel_version}: some 20 seconds")
        for guest in self.guests:
            guest.start(image, self.host)
        for guest in self.guests:
            guest.wait_ready()
        if self._snapshots:
            self._say("saving a snapshot of them for the next time")
            self.snapshot(cached)

    def _stop_guests(self) -> None:
        for guest in self.guests:
            guest.stop()

    def _snapshot_key(self, image: images.Image) -> str:
        """Returns a key: a snapshot fits one version of QEMU and one set of arguments."""
        version = subprocess.run(
            [images.tool("qemu-system-x86_64"), "--version"], capture_output=True, timeout=30
        ).stdout
        arguments = json.dumps([guest.arguments(image) for guest in self.guests])
        everything = version + arguments.replace(str(self.directory), "").encode()
        return hashlib.sha256(everything).hexdigest()[:16]

    @contextlib.contextmanager
    def mtu(self, mtu: int) -> Iterator[None]:
        """Changes the MTU of guests and host for a while: 4096 bytes of RDMA need 4176 at least."""
        try:
            self._set_mtu(mtu)
            yield
        finally:
            self._set_mtu(self._mtu)

    def _set_mtu(self, mtu: int) -> None:
        self.host.set_link(mtu=mtu)
        for guest in self.guests:
            guest.mtu = mtu

    def snapshot(self, directory: Path) -> None:
        """Saves the memory of both guests in a new directory, all or nothing; they go on."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        work = directory.with_name(f"{directory.name}.tmp-{os.getpid()}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            with ThreadPoolExecutor(len(self.guests)) as pool:
                list(pool.map(lambda guest: guest.save(work / f"{guest.name}.zst"), self.guests))
            with contextlib.suppress(OSError):  # another process was faster
                work.rename(directory)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def restore(self, directory: Path) -> None:
        """Puts both guests back to their saved state; what runs in them is lost."""
        image = self._image
        if image is None:
            raise LabError("only the process that started a lab can restore it")
        self._stop_guests()

        def start(guest: Guest) -> None:
            guest.start(image, self.host, directory / f"{guest.name}.zst")
            guest.wait_ready(60)

        with ThreadPoolExecutor(len(self.guests)) as pool:
            list(pool.map(start, self.guests))


_START_TIME = 19  # in /proc/PID/stat, counted behind the name


def running(name: str) -> list[Guest]:
    """Returns the guests of a lab that run, also if another process has started them."""
    guests = [Guest(LABS / name, guest) for guest in GUESTS]
    return [guest for guest in guests if guest.pid() is not None]


def _namespace(directory: Path) -> str:
    return f"ldma-lab-{directory.name}"


def remove(directory: Path) -> None:
    """Takes down the lab of a directory, whichever process made it, if there is one."""
    for name in GUESTS:
        Guest(directory, name).stop()
    with contextlib.suppress(FileNotFoundError):
        netns.remove(_namespace(directory))
    shutil.rmtree(directory, ignore_errors=True)


def _sweep() -> None:
    """Takes down labs whose process and keeper were both killed."""
    for file in LABS.glob("*/owner"):
        try:
            pid, start = json.loads(file.read_text())
            now = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            is_alive = now[_START_TIME] == start
        except ValueError:
            continue  # another process is writing it
        except OSError:
            is_alive = False
        if not is_alive:
            remove(file.parent)
