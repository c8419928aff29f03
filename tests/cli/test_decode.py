# SPDX-License-Identifier: BSD-2-Clause
"""`livedma decode` as people run it: in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import captures
import frames

COMMAND = [sys.executable, "-m", "livedma.cli", "decode"]
RPING = captures.BUNDLED / "rping_rc.pcap"  # 125 packets, all RoCE
ACK = frames.roce2(frames.v4(frames.bth(0x11) + b"\x1f\0\0\1"))
ARP = frames.ethernet(0x0806, bytes(46))


def run(*args: object, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [*COMMAND, *map(str, args)], input=stdin, capture_output=True, check=False, timeout=60
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def failed(*args: object, stdin: bytes | None = None) -> str:
    """The one sentence of a run that failed."""
    done = run(*args, stdin=stdin)
    assert done.returncode == 1
    lines = [
        line for line in done.stderr.decode().splitlines() if not re.match(r"[\d,]+ RoCE", line)
    ]
    assert len(lines) == 1, lines
    assert lines[0].startswith("livedma: ")
    return lines[0]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two RoCE packets among three others."""
    path = tmp_path / "mixed.pcap"
    path.write_bytes(frames.pcap(ARP, ACK, ARP, ACK, ARP))
    return path


def test_text_is_the_default() -> None:
    done = run(RPING)
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 125
    assert all(line.endswith("icrc ok") for line in lines)
    assert b"\x1b" not in done.stdout
    assert done.stderr == b"125 RoCE packets, no bad ICRC\n"
    assert run(RPING, "--format", "text").stdout == done.stdout


def test_json() -> None:
    done = run(RPING, "--format", "json")
    assert done.returncode == 0
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert [packet["n"] for packet in seen] == list(range(1, 126))
    assert seen[0]["cm"]["attribute"] == "REQ"
    assert run(RPING, "--json").stdout == done.stdout


def test_struct() -> None:
    done = run(RPING, "--format", "struct")
    assert done.returncode == 0
    assert done.stdout.count(b"packet length: ") == done.stdout.count(b"\n\n") == 125
    assert b"IB_OPCODE_RC_RDMA_WRITE_ONLY\nstruct rxe_bth {\n" in done.stdout


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rping.parquet"
    done = run(RPING, "--format", "parquet", "--write", path)
    assert (done.returncode, done.stdout) == (0, b"")
    rows = pq.read_table(path)
    assert rows.num_rows == 125
    assert rows["icrc_ok"].to_pylist() == [True] * 125
    through = run(RPING, "--format", "parquet", "--write", "-")
    (tmp_path / "through.parquet").write_bytes(through.stdout)
    assert pq.read_table(tmp_path / "through.parquet").equals(rows)


@pytest.mark.parametrize("form", ["text", "json", "struct"])
def test_write_to_a_file(form: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    done = run(RPING, "--format", form, "--write", path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert path.read_bytes() == run(RPING, "--format", form).stdout


@pytest.mark.parametrize("form", ["text", "json", "struct"])
def test_standard_input(form: str) -> None:
    done = run("-", "--format", form, stdin=RPING.read_bytes())
    assert done.returncode == 0
    assert done.stdout == run(RPING, "--format", form).stdout


def test_pcapng_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "rping.pcapng"
    subprocess.run(["editcap", "-F", "pcapng", RPING, path], check=True)
    assert run(path, "--json").stdout == run(RPING, "--json").stdout


def test_other_packets_are_counted_and_not_printed(mixed: Path) -> None:
    done = run(mixed, "--json")
    assert [json.loads(line)["n"] for line in done.stdout.splitlines()] == [1, 2]
    assert done.stderr == b"2 RoCE packets, no bad ICRC, 3 not RoCE, not shown\n"
    assert run(mixed, "--format", "struct").stdout.count(b"packet length") == 2


def test_nothing_but_other_packets(tmp_path: Path) -> None:
    path = tmp_path / "arp.pcap"
    path.write_bytes(frames.pcap(ARP))
    done = run(path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"0 RoCE packets, 1 not RoCE, not shown\n"


def test_others_at_the_end_are_counted_too(tmp_path: Path) -> None:
    path = tmp_path / "tail.pcap"
    path.write_bytes(frames.pcap(*[ACK] * 2048, *[ARP] * 5))  # 2,048: as many as a batch takes
    assert run(path).stderr == b"2,048 RoCE packets, no bad ICRC, 5 not RoCE, not shown\n"


def test_trouble_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "trouble.pcap"
    bad = ACK[:-1] + bytes([ACK[-1] ^ 1])
    unknown = frames.roce2(frames.v4(frames.bth(0x1F)))
    cut = ACK[:50]
    path.write_bytes(
        frames.pcap(ACK, bad, unknown, cut, lengths=(len(ACK), len(ACK), len(unknown), len(ACK)))
    )
    done = run(path, "--json")
    assert done.returncode == 0
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert [packet["icrc_ok"] for packet in seen] == [True, False, True, None]
    assert ["error" in packet for packet in seen] == [False, False, True, True]
    assert b"4 RoCE packets, 1 with a BAD ICRC" in done.stderr


# Terminals and pipes


def in_a_terminal(*args: object) -> str:
    """What the command prints where standard output is a terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *map(str, args)],
        stdout=follower,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"},
    ) as child:
        os.close(follower)
        printed = b""
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # The other side is gone.
                break
            if not data:
                break
            printed += data
        os.close(leader)
        assert child.stderr is not None
        errors = child.stderr.read()
        assert b"Traceback" not in errors
    return printed.decode() + errors.decode()


def test_colours_in_a_terminal_only(mixed: Path) -> None:
    shown = in_a_terminal(mixed)
    assert "\x1b[32mRC ACK" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r", "")
    done = run(mixed)
    assert plain == (done.stdout + done.stderr).decode()
    assert "\x1b" not in in_a_terminal(mixed, "--json")


def test_binary_is_kept_from_terminals(mixed: Path) -> None:
    assert "parquet is binary: give a file with --write FILE" in in_a_terminal(
        mixed, "--format", "parquet"
    )


@pytest.mark.parametrize("form", ["text", "json", "struct", "parquet"])
def test_a_reader_that_has_had_enough(form: str, tmp_path: Path) -> None:
    path = tmp_path / "long.pcap"
    path.write_bytes(frames.pcap(*[ACK] * 20_000))
    with subprocess.Popen(
        [*COMMAND, str(path), "--format", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.read(1)
        child.stdout.close()
        errors = child.stderr.read().decode()
    assert child.returncode == 0
    assert "Traceback" not in errors
    assert "Error" not in errors
    assert "Exception" not in errors


def test_a_full_disk(mixed: Path) -> None:
    for form in ("text", "json", "struct", "parquet"):
        assert "No space left" in failed(mixed, "--format", form, "--write", "/dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, str(mixed)], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"No space left" in done.stderr


# What is no capture


def test_no_such_file(tmp_path: Path) -> None:
    assert failed(tmp_path / "none.pcap").endswith(
        "none.pcap: cannot be read: No such file or directory"
    )
    assert "Is a directory" in failed(tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"a", b"hello, world, this is no capture\n" * 10, bytes(1000), b"\x7fELF" + bytes(100)],
    ids=["empty", "one byte", "text", "zeros", "ELF"],
)
def test_not_a_capture(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    message = failed(path)
    assert str(path) in message
    assert failed("-", stdin=data) == message.replace(str(path), "standard input")


def test_where_nothing_can_be_written(mixed: Path, tmp_path: Path) -> None:
    message = failed(mixed, "--write", tmp_path / "none" / "out")
    assert message.endswith("out: No such file or directory")


@pytest.mark.slow
def test_truncated_anywhere(tmp_path: Path) -> None:
    """All whole packets come out, then one sentence says where the file breaks off."""
    whole = frames.pcap(ACK, ACK, ACK)
    record = 16 + len(ACK)
    for length in (3, 20, 24 + 5, 24 + record + 15, 24 + record + 16, len(whole) - 1):
        path = tmp_path / "cut.pcap"
        path.write_bytes(whole[:length])
        done = run(path, "--json")
        assert done.returncode == 1
        assert len(done.stdout.splitlines()) == max(0, length - 24) // record
        assert done.stderr.decode().count("livedma: ") == 1
    path.write_bytes(whole[:24])
    assert run(path).returncode == 0  # A capture without packets is one.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_files(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "random"
    heads = [
        b"",
        frames.pcap(),
        bytes.fromhex("0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000"),
        frames.pcap(ACK, *[rng.randbytes(rng.randrange(200)) for _ in range(50)]),
    ]
    for head in heads:
        path.write_bytes(head + rng.randbytes(5000))
        assert run(path, "--format", rng.choice(["text", "json", "struct"])).returncode in (0, 1)


def test_damaged_captures() -> None:
    rng = random.Random(7)
    for name in ("rping_rc", "rping_v6", "host_userspace_rc"):
        data = bytearray((captures.BUNDLED / f"{name}.pcap").read_bytes())
        for _ in range(300):
            data[rng.randrange(24, len(data))] = rng.randrange(256)
        done = run("-", "--json", stdin=bytes(data))
        assert done.returncode in (0, 1)
        for line in done.stdout.splitlines():
            json.loads(line)


# Wrong use and help


@pytest.mark.parametrize(
    "args",
    [[], ["a", "b"], ["a", "--format", "xml"], ["a", "--format"], ["a", "--nonsense"]],
    ids=["nothing", "two files", "format", "no format", "option"],
)
def test_wrong_use(args: list[str]) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"livedma decode: ")
    assert done.stderr.endswith(b"\ntry 'livedma decode --help'\n")


def test_help_has_an_example() -> None:
    done = run("--help")
    assert done.returncode == 0
    text = done.stdout.decode()
    assert re.search(r"examples?:\n  livedma decode \S+\.pcap", text)
    for word in ("--format", "text", "struct", "json", "parquet", "--write", "--summary"):
        assert word in text
    everything = subprocess.run(
        [sys.executable, "-m", "livedma.cli", "--help"], capture_output=True, check=True
    )
    assert b"decode" in everything.stdout


# Size


@pytest.mark.slow
def test_memory_does_not_grow_with_the_capture(tmp_path: Path) -> None:
    """Ten times the packets: hardly more memory, whatever the format."""
    few = frames.pcap(*[ACK] * 1000)
    body = few[24:]
    out = tmp_path / "out"
    for form in ("json", "parquet"):
        used = []
        for repeats in (80, 800):
            with subprocess.Popen(
                [*COMMAND, "-", "--format", form, "--write", str(out)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as child:
                assert child.stdin is not None
                child.stdin.write(few[:24])
                for _ in range(repeats):
                    child.stdin.write(body)
                child.stdin.close()
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
            assert child.returncode == 0
            used.append(usage.ru_maxrss // 1024)
        assert used[1] - used[0] < 40, f"{form}: {used} MiB"
        if form == "parquet":
            assert pq.ParquetFile(out).metadata.num_rows == 800_000
