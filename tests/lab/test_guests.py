# SPDX-License-Identifier: BSD-2-Clause
"""Guests with a real kernel: commands in them, and their RDMA as livedma sees it on the wire."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

import pytest

from livedma.errors import LabError
from livedma.lab.channel import PORTS
from livedma.lab.guest import Guest, Lab
from stock_rping import assert_ended_well
from wiretap import MANAGEMENT, counted, wiretap

pytestmark = pytest.mark.slow


def test_both_have_an_rdma_device(guests: Lab) -> None:
    for guest in guests.guests:
        link = guest.run("rdma link", check=True).stdout
        assert link.split()[:4] == ["link", "rxe0/1", "state", "ACTIVE"]
        assert guest.ipv4 in guest.run("ip -br addr show eth0", check=True).stdout
        assert guest.run("hostname").stdout.strip() == guest.name
        program = "import pyverbs.device as d; print([x.name for x in d.get_device_list()])"
        assert "rxe0" in guest.run(f"python3 -c '{program}'", check=True).stdout


def test_the_host_is_reached_by_both(guests: Lab) -> None:
    for guest in guests.guests:
        for address in (guests.host.ipv4, guests.host.ipv6):
            assert guest.run(f"ping -c 1 -W 20 {address}", 40).returncode == 0


def test_output_and_status_come_back(guests: Lab) -> None:
    done = guests.a.run("echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert guests.a.run("kill -9 $$").returncode == 128 + 9
    # more than the port and its socket hold at once, and not text
    size = 2_000_000
    done = guests.a.run(f"head -c {size} /dev/zero")
    assert (done.returncode, done.stdout) == (0, "\0" * size)
    with pytest.raises(LabError, match="guest a: status 3 from echo no; exit 3: no"):
        guests.a.run("echo no; exit 3", check=True)


def test_a_command_reads_what_is_written(guests: Lab) -> None:
    with guests.a.command("while read line; do echo got $line; done", takes_input=True) as command:
        for word in ("one", "two"):
            command.write(word.encode() + b"\n")
            command.wait_for(f"got {word}\n")
        command.end_input()
        assert command.wait().returncode == 0
    # More than a pipe holds, to a command that is slow to read; and to one that does not care.
    data = bytes(range(256)) * 2000
    with guests.a.command("sleep 0.5; sha256sum", takes_input=True) as command:
        command.write(data)
        command.end_input()
        assert command.wait().stdout.split()[0] == hashlib.sha256(data).hexdigest()
    with guests.a.command("exec <&-; sleep 0.5; echo done", takes_input=True) as command:
        command.write(data)
        assert command.wait().stdout == "done\n"
    assert guests.a.run("cat").stdout == ""  # without input there is an end of it


def test_a_file_is_put_into_a_guest(guests: Lab) -> None:
    data = bytes(range(256)) * 300
    guests.a.put(data, "/tmp/it's here")
    digest = guests.a.run('sha256sum < "/tmp/it\'s here"', check=True).stdout.split()[0]
    assert digest == hashlib.sha256(data).hexdigest()
    with pytest.raises(LabError, match=r"guest a: /none/file cannot be written: .*No such file"):
        guests.a.put(b"", "/none/file")


def _host_mtu(lab: Lab) -> int:
    with lab.host.netlink() as ip:
        return int(ip.get_links(lab.host.ifindex)[0].get_attr("IFLA_MTU"))


def test_the_mtu_changes_for_a_while(guests: Lab) -> None:
    def active(guest: Guest) -> str:
        shown = guest.run("ibv_devinfo -d rxe0", check=True).stdout
        return shown.split("active_mtu:")[1].split()[0]

    assert [active(guest) for guest in guests.guests] == ["1024", "1024"]
    assert _host_mtu(guests) == 1500
    with guests.mtu(4500):
        assert _host_mtu(guests) == 4500
        assert [active(guest) for guest in guests.guests] == ["4096", "4096"]
        # as long as a packet of 4096 bytes with all its headers, to the other guest and to the host
        for address in (guests.b.ipv4, guests.host.ipv4):
            ping = f"ping -c 1 -W 20 -M do -s {4500 - 28} {address}"
            assert guests.a.run(ping, 40).returncode == 0
    assert [guest.mtu for guest in guests.guests] == [1500, 1500]
    assert _host_mtu(guests) == 1500
    assert [active(guest) for guest in guests.guests] == ["1024", "1024"]


def test_what_takes_too_long_is_ended(guests: Lab) -> None:
    with guests.b.command("echo begun; sleep 987") as command:
        command.wait_for("begun")
        with pytest.raises(LabError, match=r"not done after 0\.1 s: echo begun; .* 'begun\\n'"):
            command.wait(0.1)
    guests.b.wait_until("! pgrep -f 'sleep 98[7]'")


def test_commands_run_side_by_side(guests: Lab) -> None:
    running = [guests.a.command(f"echo {n}; read < /tmp/go{n}") for n in range(PORTS - 1)]
    try:
        for n, command in enumerate(running):
            command.wait_for(f"{n}\n")
    finally:
        for command in running:
            command.close()
    # A port that was left in the middle of a command works again, at once and each time.
    threads = [threading.Thread(target=guests.a.run, args=("true",)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [guests.a.run(f"echo {n}").stdout for n in range(20)] == [f"{n}\n" for n in range(20)]


def test_a_background_process_does_not_hold_a_command_up(guests: Lab) -> None:
    done = guests.a.run("setsid sleep 60 & echo started", 30)
    assert (done.returncode, done.stdout) == (0, "started\n")
    guests.a.run("pkill sleep")


@pytest.mark.parametrize("version", [4, 6])
def test_rping_is_captured_whole(bpf: None, guests: Lab, version: int, tmp_path: Path) -> None:
    a, b = guests.guests
    server, client = (a.ipv6, b.ipv6) if version == 6 else (a.ipv4, b.ipv4)
    count, size = 20, 3000
    b.run(
        f"ping -c 1 -W 20 {server}", check=True
    )  # rping gives the neighbour two seconds to answer
    options = f"-a {server} -p 7200 -C {count} -S {size} -V -v"
    with (
        wiretap(guests, b, tmp_path / "rping.pcapng") as tap,
        counted(guests) as kernels,
        a.command(f"rping -s {options}") as serving,
    ):
        a.wait_until("rdma resource show cm_id | grep -q 'LISTEN.*7200'")
        done = b.run(f"rping -c {options}", 120)
        served = serving.wait(60)
    assert_ended_well(done)
    assert_ended_well(served)
    assert done.stdout.count("ping data: rdma-ping-") == count
    assert served.stdout.count("server ping data: rdma-ping-") == count

    tap.assert_whole()
    tap.assert_has_what(kernels)
    assert {packet["src"] for packet in tap.packets} == {server, client}
    # The connection manager's messages, as many as the kernels counted and in their order.
    for name in MANAGEMENT:
        arrived, sent = (kernels.total(f"cm_{way}_msgs/{name}") for way in ("rx", "tx"))
        assert arrived <= tap.management()[name] <= sent
    order = dict.fromkeys(packet["cm"]["attribute"] for packet in tap.inside("cm"))
    assert list(order)[:3] == ["REQ", "REP", "RTU"]
    request = tap.inside("cm")[0]["cm"]
    assert (request["port_space"], request["port"]) == ("TCP", 7200)
    assert (request["ip_cm"]["src"], request["ip_cm"]["dst"]) == (client, server)
    # A ping: the client says where its data is, the server reads it, says so; the client says where
    # it wants the data back, the server writes it, says so.
    (connection,) = tap.connections()
    assert connection["messages"] == {"SEND": 4 * count, "READ": count, "WRITE": count}
    assert connection["payload_bytes"]["READ"] == count * size
    assert connection["payload_bytes"]["WRITE"] == count * size
    assert {connection["a_address"], connection["b_address"]} == {server, client}
    assert connection["joined_by"] == "CM"
    assert {"RC_SEND_ONLY", "RC_RDMA_WRITE_FIRST", "RC_RDMA_READ_REQUEST"} <= set(tap.opcodes())


def test_nfs_over_rdma_is_captured_whole(bpf: None, guests: Lab, tmp_path: Path) -> None:
    a, b = guests.guests
    a.run("/lab/nfs-server", check=True)
    size = 1_000_000
    script = f"""set -e
    mkdir -p /mnt/nfs
    mount -t nfs -o rdma,port=20049,vers=4.1 {a.ipv4}:/ /mnt/nfs
    trap 'umount /mnt/nfs' EXIT
    head -c {size} /dev/urandom > /tmp/data
    cp /tmp/data /mnt/nfs/data
    sync -f /mnt/nfs
    echo 3 > /proc/sys/vm/drop_caches  # so that it is read from the server
    cmp /tmp/data /mnt/nfs/data
    """
    with wiretap(guests, b, tmp_path / "nfs.pcapng") as tap, counted(guests) as kernels:
        b.run(script, 120, check=True)
    there, here = (
        guest.run("sha256sum < " + path).stdout
        for guest, path in ((a, "/export/data"), (b, "/tmp/data"))
    )
    assert there == here
    a.run("rm /export/data")

    tap.assert_whole()
    tap.assert_has_what(kernels)
    moved = [connection["payload_bytes"] for connection in tap.connections()]
    # The server fetches what is written with READs and delivers what is read with WRITEs.
    assert sum(one.get("READ", 0) for one in moved) >= size
    assert sum(one.get("WRITE", 0) for one in moved) >= size
    text = tap.path.with_suffix(".json")
    text.write_text("\n".join(map(str, tap.packets)))
    for operation in ("EXCHANGE_ID", "CREATE_SESSION", "SEQUENCE", "WRITE", "READ"):
        assert operation in text.read_text()


def test_nvme_over_rdma_is_captured_whole(bpf: None, guests: Lab, tmp_path: Path) -> None:
    a, b = guests.guests
    a.run("/lab/nvme-target", check=True)
    blocks, block = 16, 65536
    script = f"""set -e
    modprobe nvme-rdma
    nvme connect -t rdma -a {a.ipv4} -s 4420 -n lab -i 1 -q nqn.2014-08.org.nvmexpress:lab-b
    trap 'nvme disconnect -n lab' EXIT
    until [ -b /dev/nvme0n1 ]; do sleep 0.1; done
    head -c {blocks * block} /dev/urandom > /tmp/data
    dd if=/tmp/data of=/dev/nvme0n1 bs={block} oflag=direct status=none
    dd if=/dev/nvme0n1 bs={block} count={blocks} iflag=direct status=none | cmp - /tmp/data
    """
    with wiretap(guests, b, tmp_path / "nvme.pcapng") as tap, counted(guests) as kernels:
        b.run(script, 120, check=True)
    tap.assert_whole()
    tap.assert_has_what(kernels)
    moved = [connection["payload_bytes"] for connection in tap.connections()]
    assert len(moved) == 2  # the admin queue and one for I/O
    assert sum(one.get("READ", 0) for one in moved) >= blocks * block
    assert sum(one.get("WRITE", 0) for one in moved) >= blocks * block


def test_a_snapshot_brings_both_back(guests: Lab, tmp_path: Path) -> None:
    for guest in guests.guests:
        guest.run(f"echo {guest.name} > /root/mark", check=True)
    guests.snapshot(tmp_path / "marked")
    for guest in guests.guests:
        assert guest.run("cat /root/mark; rm /root/mark").stdout == f"{guest.name}\n"
    guests.restore(tmp_path / "marked")
    for guest in guests.guests:
        assert guest.run("cat /root/mark; rm /root/mark").stdout == f"{guest.name}\n"
        assert abs(float(guest.run("date +%s.%N").stdout) - time.time()) < 60
    # The same memory, but not the same random numbers: connections get other PSNs and keys.
    drawn = {guests.a.run("cat /proc/sys/kernel/random/uuid", check=True).stdout}
    guests.restore(tmp_path / "marked")
    drawn |= {guests.a.run("cat /proc/sys/kernel/random/uuid", check=True).stdout}
    assert len(drawn) == 2
    assert guests.b.run(f"ping -c 1 -W 20 {guests.a.ipv4}", 40).returncode == 0
