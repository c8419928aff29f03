# SPDX-License-Identifier: BSD-2-Clause
"""livedma doctor in situations that are really made: what it says, and its exit status."""

from __future__ import annotations

import errno
import os
import resource
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnosed import Diagnosis, diagnose
from livedma.doctor import GROUPS
from livedma.doctor.capabilities import SERVER
from livedma.lab.hosts import Host, two_hosts
from needs import needs
from unprivileged import as_nobody

WANTED_BYTES = 8 << 20
AMPLE_BYTES = 1 << 30
UNIT = Path(__file__).resolve().parents[2] / "packaging" / "livedma.service"

# Makes bpf(2) fail, as container runtimes do, then becomes the command.
_WITHOUT_BPF = """
import ctypes, os, struct, sys
code = b"".join(struct.pack("HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 321), (0x06, 0, 0, 0x50000 | int(sys.argv[1])),
    (0x06, 0, 0, 0x7FFF0000)))
buffer = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """With ports that nobody else of this machine has."""
    needs(os.geteuid() == 0, "namespaces need root")
    with two_hosts(mtu=9000) as (one, _):
        yield one


@pytest.fixture
def home() -> Iterator[Path]:
    """A plain user's."""
    with tempfile.TemporaryDirectory() as name:
        for one in (Path(name), Path(name) / "export"):
            one.mkdir(exist_ok=True)
            os.chown(one, 65534, 65534)
        yield Path(name)


def test_the_server_needs_what_its_unit_gives() -> None:
    (line,) = (line for line in UNIT.read_text().splitlines() if line.startswith("Ambient"))
    given = line.partition("=")[2].split()
    assert {name.removeprefix("CAP_").lower() for name in given} == set(SERVER)


def states(diagnosis: Diagnosis, *names: str) -> dict[str, str]:
    return {one["name"]: one["state"] for one in diagnosis.findings if one["name"] in names}


@pytest.mark.slow
def test_as_root(host: Host, bpf: None) -> None:
    found = diagnose(*host.command())
    assert found.status == 0 and found.said["can_run"]
    assert {host.ipv4, host.ipv6, "127.0.0.1"} <= set(found.said["addresses"])
    assert found.said["verdict"].startswith("livedma serve can run here: ")
    wanted = ("for-server", "for-capture", "for-guard", "for-lab", "identities")
    assert set(states(found, *wanted).values()) == {"fine"}
    assert set(states(found, "monitor", "capture", "sharing", "port", "nfs-port").values()) == {
        "fine"
    }
    assert found.one("monitor")["facts"]["mode"] in ("tcx", "clsact")
    assert found.one("mtu", interface=host.iface)["facts"]["path_mtu"] == 4096


@pytest.mark.slow
def test_without_root_it_says_what_each_part_lacks(host: Host) -> None:
    found = diagnose(*host.command(), *as_nobody())
    assert found.status == 0 and found.said["can_run"]
    server = found.one("for-server")
    # as_nobody() may have to leave it the right to read what is in a home
    assert {*server["facts"]["missing"], "dac_read_search"} == set(SERVER)
    assert "CAP_NET_RAW" in server["text"] and "no BPF monitor" in server["cost"]
    names = ("for-capture", "for-guard", "for-lab", "identities", "monitor")
    assert set(states(found, *names).values()) == {"costs"}
    assert "CAP_BPF" in found.one("monitor")["text"]
    port = found.one("port", kind="udp", addresses=["127.0.0.1", host.ipv4])
    assert port["state"] == "costs" and "CAP_NET_RAW" in port["cost"]
    sharing = found.one("sharing")
    assert sharing["state"] == "costs" and "CAP_BPF" in sharing["cost"]
    state = found.one("state")  # nobody has no home
    assert state["state"] == "fine" and state["facts"]["path"].startswith("/var/tmp/livedma-")
    buffers = found.one("socket-buffers")
    allowed = int(Path("/proc/sys/net/core/rmem_max").read_text())
    assert buffers["facts"]["given_bytes"] == min(allowed, WANTED_BYTES)
    assert buffers["state"] == ("fine" if allowed >= WANTED_BYTES else "costs")
    assert found.one("on-demand")["state"] == "fine"
    for one in found.findings:
        assert not one["fix"] or one["fix"].startswith(("sudo ", "/", "printf", "echo"))


@pytest.mark.slow
def test_the_command_for_who_lacks_capabilities_gives_just_those(host: Host, bpf: None) -> None:
    fix = diagnose(*host.command(), *as_nobody()).one("for-server")["fix"]
    assert fix.startswith("sudo ") and fix.endswith(" serve DIR")
    before = shlex.split(fix.removeprefix("sudo ").removesuffix("serve DIR"))
    assert before[-1].endswith("/livedma")
    found = diagnose(*host.command(), *before[:-1])
    capabilities = found.one("capabilities")["facts"]
    assert set(capabilities["effective"]) == set(SERVER) and capabilities["uid"] == 65534
    names = ("for-server", "identities", "monitor", "capture", "port")
    assert set(states(found, *names).values()) == {"fine"}


@pytest.mark.slow
def test_root_without_the_capabilities_for_bpf(host: Host) -> None:
    bare = ("setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon")
    found = diagnose(*host.command(), *bare)
    assert found.status == 0 and found.said["can_run"]
    monitor = found.one("monitor")
    assert (monitor["state"], monitor["facts"]["errno"]) == ("costs", "EPERM")
    assert "CAP_BPF" in monitor["text"] and "from inside only" in monitor["cost"]
    assert monitor["fix"] == "docker run --cap-add=BPF --cap-add=PERFMON IMAGE"
    assert found.one("for-server")["facts"]["missing"] == ["bpf", "perfmon"]
    assert found.one("sharing")["state"] == "costs"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "says"),
    [(errno.EPERM, "a seccomp filter forbids bpf(2)"), (errno.ENOSYS, "this kernel has no BPF")],
)
def test_a_system_without_bpf(host: Host, code: int, says: str) -> None:
    needs(os.uname().machine == "x86_64", "the filter knows bpf(2) by its number")
    found = diagnose(*host.command(), sys.executable, "-c", _WITHOUT_BPF, str(code))
    assert found.status == 0 and found.said["can_run"]
    for name in ("monitor", "capture"):
        one = found.one(name)
        assert (one["state"], one["text"]) == ("costs", says)
    assert ("seccomp=unconfined" in found.one("monitor")["fix"]) == (code == errno.EPERM)
    assert found.one("sharing")["state"] == "costs"


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "says"), [(0, "cannot pin 4 KiB"), (65536, "64 KiB in all")])
def test_a_tiny_limit_on_pinned_memory_and_its_fix(host: Host, limit: int, says: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    most = AMPLE_BYTES if hard == resource.RLIM_INFINITY else min(hard, AMPLE_BYTES)
    tiny = ("prlimit", f"--memlock={limit}:{most}", "setpriv", "--bounding-set", "-ipc_lock")
    found = diagnose(*host.command(), *tiny)
    pinned = found.one("pinned-memory")
    assert found.status == 0
    assert pinned["state"] == "costs" and says in pinned["text"]
    assert "LimitMEMLOCK=" in pinned["keep"]
    # Where the hard limit is lower and cannot be raised, the same command goes as far as that.
    fix = pinned["fix"].replace(str(AMPLE_BYTES), str(most))
    mended = diagnose(*host.command(), *tiny, "sh", "-ec", f'{fix}; exec "$@"', "sh")
    pinned = mended.one("pinned-memory")
    assert pinned["facts"]["limit_bytes"] == most
    assert pinned["state"] == ("fine" if most == AMPLE_BYTES else "costs")


@pytest.mark.slow
def test_few_open_files(host: Host) -> None:
    few = ("prlimit", "--nofile=512:512")
    files = diagnose(*host.command(), *few).one("open-files")
    assert files["state"] == "costs" and "about 128 files" in files["cost"]
    assert files["fix"] == "prlimit --pid $$ --nofile=65536"
    assert "LimitNOFILE=65536" in files["keep"]


@pytest.mark.slow
def test_a_port_that_is_taken_everywhere_stops_the_server(host: Host) -> None:
    with host.inside():
        both = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with both:
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        both.bind(("", 4791))
        found = diagnose(*host.command())
        assert found.status == 1 and not found.said["can_run"]
        assert found.said["addresses"] == []
        one = found.one("address", address=host.ipv4)
        assert (one["state"], one["facts"]["owner_pid"]) == ("costs", os.getpid())
        assert f"(process {os.getpid()} of root)" in one["text"]
        # Whether a stranger's process may end is for its user to say.
        assert (one["fix"], one["look"]) == ("", f"ps -fp {os.getpid()}")
        assert one["facts"]["is_own"] is False
        assert "cannot run here" in found.said["verdict"]
        said = subprocess.run(host.command("livedma", "doctor"), capture_output=True, text=True)
        assert said.returncode == 1
        assert said.stdout.splitlines()[-1] == found.said["verdict"]
    assert diagnose(*host.command()).status == 0


@pytest.mark.slow
def test_a_port_that_is_taken_at_one_address_leaves_the_others(host: Host) -> None:
    with host.inside():
        taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with taker:
        taker.bind((host.ipv4, 4791))
        found = diagnose(*host.command())
        assert found.status == 0 and host.ipv4 not in found.said["addresses"]
        assert "--listen 127.0.0.1" in found.said["verdict"]
        alone = diagnose(*host.command(), arguments=(host.ipv4,))
        assert alone.status == 1 and not alone.said["can_run"]


@pytest.mark.slow
def test_a_server_that_runs_already_has_its_ports(host: Host, tmp_path: Path, bpf: None) -> None:
    (tmp_path / "export").mkdir()
    serve = ["livedma", "serve", str(tmp_path / "export"), "--listen", host.ipv4]
    serve += ["--state", str(tmp_path / "state"), "--control", str(tmp_path / "control")]
    with subprocess.Popen(host.command(*serve), stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        while "control socket" not in server.stderr.readline():
            assert server.poll() is None
        found = diagnose(*host.command())
        look = found.one("address", address=host.ipv4)["look"]
        looked = subprocess.run(["sh", "-ec", look], stdout=subprocess.DEVNULL).returncode
        server.terminate()
    nfs = found.one("nfs-port")
    assert nfs["state"] == "costs" and f"(process {server.pid} of root)" in nfs["text"]
    assert nfs["fix"].endswith(" serve DIR --tcp 12049")
    one = found.one("address", address=host.ipv4)
    assert one["facts"]["is_free"] is True and one["facts"]["is_rdma_port_free"] is False
    assert "RDMA port 20049" in one["text"] and one["facts"]["owner_pid"] == server.pid
    assert "livedma's server" in one["text"] and " of root)" in one["text"]
    assert one["fix"].endswith(f" serve DIR --listen {host.ipv4} --rdma 20050")
    assert one["look"].endswith(f" why --control {tmp_path / 'control'}") and looked == 0
    assert one["facts"]["is_own"] is nfs["facts"]["is_own"] is True
    assert f"kill {server.pid}" not in str(found.said)
    # its monitor is on the interface, and is not mistaken for somebody else's
    assert found.one("programs", interface=host.iface)["state"] == "fine"


@pytest.mark.slow
def test_a_server_of_a_plain_user_is_known_as_one(host: Host, home: Path) -> None:
    """It does not share its address: a second server takes the next one."""
    serve = ["livedma", "serve", str(home / "export"), "--listen", "127.0.0.1", "--tcp", "12049"]
    serve += ["--state", str(home / "state"), "--control", str(home / "control")]
    argv = host.command(*as_nobody(), *serve)
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        while "control socket" not in server.stderr.readline():
            assert server.poll() is None
        for who in ([], as_nobody()):
            one = diagnose(*host.command(*who)).one("address", address="127.0.0.1")
            assert f"livedma's server (process {server.pid} of nobody)" in one["text"]
            assert one["fix"].endswith(" serve DIR --listen 127.0.0.2")
            assert one["look"].endswith(f" why --control {home / 'control'}")
        server.terminate()


@pytest.mark.slow
def test_a_web_port_that_is_taken_is_told(host: Host) -> None:
    with host.inside():
        taker = socket.create_server(("127.0.0.1", 20080))
    with taker:
        web = diagnose(*host.command()).one("web-port")
    assert web["state"] == "costs" and f"(process {os.getpid()} of root)" in web["text"]
    assert web["fix"].endswith("--web 127.0.0.1:20081")


@pytest.mark.slow
def test_without_an_address_no_server_can_run() -> None:
    needs(os.geteuid() == 0, "namespaces need root")
    found = diagnose("unshare", "--net")
    assert found.status == 1 and not found.said["can_run"]
    one = found.one("address")
    assert (one["state"], one["fix"]) == ("stops", "ip link set dev lo up")
    mended = diagnose("unshare", "--net", "sh", "-ec", f'{one["fix"]}; exec "$@"', "sh")
    assert mended.status == 0 and "127.0.0.1" in mended.said["addresses"]


@pytest.mark.slow
def test_a_container_with_a_read_only_sys_and_no_bpf_file_system() -> None:
    """Nothing is mounted by looking: doctor leaves it to the server."""
    needs(os.geteuid() == 0, "namespaces need root")
    inside = (
        "mount -t sysfs -o ro sysfs /sys; ip link set dev lo up; "
        '"$@"; test "$(stat -f -c %T /sys/fs/bpf)" = sysfs'
    )
    away = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc")
    found = diagnose(*away, "sh", "-ec", inside, "sh")
    assert found.status == 0 and found.said["can_run"]
    assert found.one("bpf-fs")["facts"]["is_mounted"] is False
    assert "could not be looked at" not in str(found.said)
    found = diagnose(*away, "sh", "-ec", inside, "sh", *as_nobody())
    assert found.one("bpf-fs")["state"] == "costs"
    assert "could not be looked at" not in str(found.said)


def test_the_form_of_the_object() -> None:
    found = diagnose()
    assert set(found.said) == {"version", "can_run", "verdict", "addresses", "findings"}
    assert found.said["version"] == 1
    assert found.status == (0 if found.said["can_run"] else 1)
    for one in found.findings:
        assert set(one) == {
            "group",
            "name",
            "state",
            "text",
            "cost",
            "fix",
            "keep",
            "look",
            "facts",
        }
        assert one["state"] in ("fine", "costs", "stops", "unknown")
        assert bool(one["cost"]) == (one["state"] == "costs"), one
        assert one["fix"] or not one["keep"]
        assert one["group"] in GROUPS and one["text"] and isinstance(one["facts"], dict)
        assert one["state"] != "fine" or not one["fix"]
    assert {one["group"] for one in found.findings} == set(GROUPS)


@pytest.mark.slow
@pytest.mark.alone  # hosts of other tests come and go among the mounts
def test_nothing_is_left_behind(host: Host, bpf: None) -> None:
    with host.inside():
        namespace = os.stat("/proc/thread-self/ns/net").st_ino
    looks = (
        f"find /sys/fs/bpf/livedma -path *{namespace}*",
        *("ip -d link", "tc qdisc", "bpftool net", "cat /proc/mounts"),
    )

    def everything() -> list[str]:
        # Where nothing was pinned ever, find has nothing to look through.
        argvs = [host.command(*look.split()) for look in looks]
        return [subprocess.run(argv, capture_output=True, text=True).stdout for argv in argvs]

    before = everything()
    diagnose(*host.command())
    assert everything() == before


def test_an_interface_that_is_not_there() -> None:
    done = subprocess.run(["livedma", "doctor", "eth77"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert "eth77 is neither an address of this host nor an interface" in done.stderr
