# SPDX-License-Identifier: BSD-2-Clause
"""livedma perf: both sides as processes, results as perftest's, and peers that do not behave."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from commands import PATIENCE_S, loopback_address, run, serving
from hypothesis import given
from hypothesis import strategies as st

from livedma.lab.hosts import two_hosts
from livedma.rdma import cm
from livedma.tools.endpoint import device_towards
from livedma.tools.perf_client import Client
from livedma.tools.perf_control import Control, PeerError
from livedma.tools.perf_plan import ALL_SIZES, MEMORY_KINDS, Hello, Plan, PlanError, Remote
from livedma.tools.perf_report import Bandwidth, Latency, header
from livedma.tools.perf_side import Side
from needs import needs

pytestmark = pytest.mark.slow  # many processes

TESTS = ("send-bw", "write-bw", "read-bw", "send-lat", "write-lat", "read-lat")
COLUMNS = {
    "bw": "#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]",
    "lat": "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] "
    "t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]",
}
COMMON = {"size", "iterations", "qps", "mtu", "port", "bytes_per_s", "messages_per_s"}
TIMES = ("min_us", "typical_us", "p99_us", "p999_us", "max_us")
PORT = 18515


def measure(test: str, *options: str, server: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The results of a run with a server of its own; both have to end well."""
    address = loopback_address()
    with serving("livedma", "perf", test, "--listen", address, *server) as serves:
        done = run("livedma", "perf", test, address, "--json", *options)
        assert done.returncode == 0, done.stderr
        status, out, said = serves.wait()
        assert status == 0, said
        assert out.startswith(f"{test} for ")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("memory", MEMORY_KINDS)
def test_messages_may_go_round_the_server_s_memory(memory: str) -> None:
    """On both sides, of every kind; what arrives is compared, as always."""
    for test in ("write-bw", "read-bw"):
        options = ("--size", "4KiB", "--iters", "200", "--span", "1MiB", "--memory", memory)
        (result,) = measure(test, *options, server=("--memory", memory))
        assert result["iterations"] == 200


def test_sends_cannot_go_round() -> None:
    done = run("livedma", "perf", "send-bw", "127.0.0.1", "--span", "1MiB")
    assert done.returncode == 2
    assert "only write-bw and read-bw" in done.stderr


@pytest.mark.parametrize("test", TESTS)
def test_every_test_has_its_results(test: str) -> None:
    (result,) = measure(test, "--size", "4KiB", "--iters", "200")
    assert set(result) >= COMMON
    assert (result["test"], result["size"], result["iterations"]) == (test, 4096, 200)
    assert (result["qps"], result["mtu"]) == (1, 4096)
    assert result["port"] in ("udp", "packet")
    assert result["bytes_per_s"] == pytest.approx(result["messages_per_s"] * 4096, rel=1e-3)
    if test.endswith("bw"):
        assert result["peak_bytes_per_s"] >= result["bytes_per_s"]
    else:
        times = [result[name] for name in TIMES]
        assert times == sorted(times) and times[0] > 0
        assert result["min_us"] <= result["avg_us"] <= result["max_us"]


@pytest.mark.parametrize("test", TESTS)
def test_all_sizes_in_one_run(test: str) -> None:
    results = measure(test, "--all", "--iters", "3", "--depth", "2")
    assert tuple(result["size"] for result in results) == ALL_SIZES
    assert (ALL_SIZES[0], ALL_SIZES[-1]) == (2, 8 << 20)


@pytest.mark.parametrize("test", ["send-bw", "write-bw", "read-bw"])
def test_several_queue_pairs_and_a_smaller_mtu(test: str) -> None:
    (result,) = measure(test, "-q", "4", "-m", "1024", "-n", "100", "-s", "10000", "-t", "8")
    assert (result["qps"], result["mtu"], result["iterations"]) == (4, 1024, 400)


def test_a_single_byte_and_a_sleeping_side() -> None:
    for test in TESTS:
        (result,) = measure(test, "--size", "1", "--iters", "20", "--spin", "0")
        assert result["size"] == 1


def test_there_is_no_peak_of_too_many() -> None:
    (result,) = measure("write-bw", "--size", "16", "--iters", "20001")
    assert result["peak_bytes_per_s"] is None


@pytest.mark.parametrize("test", ["write-bw", "send-lat"])
def test_the_columns_are_perftests(test: str) -> None:
    address, kind = loopback_address(), test.partition("-")[2]
    with serving("livedma", "perf", test, "--listen", address):
        done = run("livedma", "perf", test, address, "--iters", "50")
    about, columns, row = done.stdout.splitlines()
    assert about.startswith(f"{test} from ") and f"to {address}: 1 queue pair, MTU 4096" in about
    assert columns.split() == COLUMNS[kind].split()
    size, iterations, *figures = row.split()
    assert (size, iterations) == ("65536" if kind == "bw" else "2", "50")
    assert len(figures) == (3 if kind == "bw" else 7)
    assert all(float(figure) >= 0 for figure in figures)
    for name in ("#bytes", "#iterations"):  # each value stands below the start of its name
        at = columns.index(name)
        assert row[at - 1] == " " != row[at]


def test_a_server_may_serve_for_ever() -> None:
    address = loopback_address()
    options = ("--listen", address, "--forever", "--json")
    with serving("livedma", "perf", "write-bw", *options) as server:
        for test in ("write-bw", "read-lat"):  # the client says what is measured
            done = run("livedma", "perf", test, address, "--iters", "10")
            assert done.returncode == 0, done.stderr
        server.interrupt()
        status, out, _ = server.wait()
    assert status == 130
    served = [json.loads(line) for line in out.splitlines()]
    assert [one["test"] for one in served] == ["write-bw", "read-lat"]


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 6])
def test_between_hosts(version: int) -> None:
    needs(os.geteuid() == 0, "namespaces need root")
    with two_hosts() as (here, there):
        address = there.ipv4 if version == 4 else there.ipv6
        # without --listen: the first address that others can reach
        options = () if version == 4 else ("--listen", address)
        with serving(*there.command("livedma", "perf", "write-bw", *options)) as server:
            client = ("livedma", "perf", "write-bw", address, "--json", "-n", "100")
            done = run(*here.command(*client))
            assert done.returncode == 0, done.stderr
            assert server.wait()[0] == 0
    result = json.loads(done.stdout)
    assert (result["server"], result["mtu"]) == (address, 1024)


@pytest.mark.parametrize("test", ["write-bw", "send-lat", "write-lat"])
def test_ctrl_c_ends_both_sides(test: str) -> None:
    address = loopback_address()
    with serving("livedma", "perf", test, "--listen", address) as server:
        argv = ["livedma", "perf", test, address, "--iters", "10000000"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
            assert client.stdout is not None
            for line in client.stdout:
                if b"#bytes" in line:
                    break
            client.send_signal(2)
            client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 130
        status, _, said = server.wait()
    assert status == 1
    assert said.splitlines()[-1].endswith("ended the run (WR_FLUSH_ERR)")


def plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "operation": "write",
        "kind": "bw",
        "sizes": (64,),
        "iterations": 10,
        "qps": 1,
        "depth": 4,
    }
    return Plan(**{**values, **changes})


@pytest.mark.parametrize("operation", ["write", "send", "read"])
@pytest.mark.parametrize("kind", ["bw", "lat"])
def test_data_that_is_not_what_was_sent_is_found(
    operation: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One side announces another end of its data than there is."""
    test, address = f"{operation}-{kind}", loopback_address()
    wish = plan(operation=operation, kind=kind, depth=1)
    if operation == "read":  # the client looks at what the server marked
        monkeypatch.setattr(Side, "sees", lambda *_: False)
    else:
        monkeypatch.setattr(Side, "mark", lambda *_: "00")
    with (
        serving("livedma", "perf", test, "--listen", address) as server,
        device_towards(address, 0) as device,
        Client(device, address, PORT, wish, spin=0, tick=lambda *_: None) as client,
    ):
        with pytest.raises(Exception, match="not what was sent"):
            list(client.results())
        client.close()
        status, _, said = server.wait()
    assert status == 1
    if operation != "read":
        assert "what arrived is not what was sent" in said


def test_strangers_are_refused_and_do_not_disturb() -> None:
    address = loopback_address()
    with (
        serving("livedma", "perf", "write-bw", "--listen", address) as server,
        device_towards(address, 0) as device,
    ):
        for data in (b"", b"something else", Hello(1, 1).pack()):
            with pytest.raises(cm.RejectedError) as caught:
                cm.connect(device, address, PORT, private_data=data, timeout=PATIENCE_S)
            assert b"livedma perf of another version" in caught.value.private_data
        done = run("livedma", "perf", "write-bw", address, "--iters", "10")
        assert done.returncode == 0, done.stderr
        assert server.wait()[0] == 0


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"operation": "erase"},
        {"sizes": []},
        {"sizes": [1 << 31]},
        {"sizes": ["64"]},
        {"sizes": [64] * 24},
        {"sizes": 64},
        {"qps": 100_000},
        {"qps": 1024, "depth": 8192},
        {"depth": 0},
        {"iterations": True},
        {"kind": "lat", "qps": 2},
        {"rkey": -1},
        {"va": None},
    ],
)
def test_a_server_refuses_what_it_cannot_do(message: dict[str, Any]) -> None:
    address = loopback_address()
    wish = {**plan().as_message(), **Remote(0, 0, 0).as_message(), **message} if message else {}
    with (
        serving("livedma", "perf", "write-bw", "--listen", address) as server,
        device_towards(address, 0) as device,
    ):
        control = Control(device)
        control.connection = cm.connect(
            device, address, PORT, private_data=Hello(1, 0).pack(), **control.setup
        )
        control.send("plan", **wish)
        with pytest.raises(PeerError):
            control.receive("memory")
        status, _, said = server.wait()
    assert status == 1
    assert len(said.splitlines()) == 2  # that it waits, and one sentence


@given(
    st.dictionaries(
        st.sampled_from(["operation", "kind", "sizes", "iterations", "qps", "depth"]),
        st.none() | st.integers() | st.text() | st.lists(st.integers()) | st.just("write"),
    )
)
def test_no_message_of_a_peer_is_more_than_refused(message: dict[str, Any]) -> None:
    try:
        found = Plan.from_message(message)
    except PlanError:
        return
    assert Plan.from_message(json.loads(json.dumps(found.as_message()))) == found


def test_nobody_serves() -> None:
    address = loopback_address()
    with device_towards(address, 0) as device:
        cm.manager(device)
        done = run("livedma", "perf", "read-bw", device.address)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "start `livedma perf read-bw` there" in done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("", "the following arguments are required: TEST"),
        ("erase-bw", "invalid choice"),
        ("write-bw ::1 --size 0", "is no size"),
        ("write-bw ::1 --size 3PiB", "is no size"),
        ("write-bw ::1 --size 2GiB", "a message can have 1 to 1073741824 bytes"),
        ("write-bw ::1 --size 64 --all", "either --size or --all"),
        ("write-lat ::1 --qps 2", "a latency is that of one queue pair"),
        ("write-bw ::1 --iters 0", "is no number"),
        ("write-bw ::1 --mtu 1500", "invalid choice"),
        ("write-bw ::1 --spin -1", "is no number of seconds"),
        ("write-bw ::1 --listen ::1", "for the server"),
        ("write-bw ::1 --forever", "for the server"),
        ("write-bw -I ::1", "for the client"),
        ("write-bw --port 0", "is no port"),
    ],
)
def test_wrong_use(argv: str, says: str) -> None:
    done = run("livedma", "perf", *argv.split())
    assert done.returncode == 2
    assert says in done.stderr


def test_help_has_an_example() -> None:
    assert "livedma perf write-bw 10.0.0.1" in run("livedma", "perf", "--help").stdout


def test_a_latency_is_half_a_round_trip() -> None:
    times_ns = [(n + 1) * 2000 for n in range(1000)]
    latency = Latency(64, times_ns, trips=2)
    figures = latency.as_json()
    assert (figures["min_us"], figures["max_us"]) == (1, 1000)
    assert (figures["p99_us"], figures["p999_us"]) == (990, 999)
    assert figures["typical_us"] == figures["avg_us"] == 500.5
    assert figures["stdev_us"] == round(statistics.pstdev(range(1, 1001)), 3)
    # two messages in each round trip
    assert figures["messages_per_s"] == round(2000 / (sum(times_ns) / 1e9), 1)
    assert Latency(64, times_ns, trips=1).as_json()["max_us"] == 2000


def test_megabytes_are_perftests() -> None:
    one = Bandwidth(size=1 << 20, iterations=1000, elapsed_ns=1_000_000_000, best_ns=500_000)
    assert one.row(in_gbits=False).split() == ["1048576", "1000", "2000.00", "1000.00", "0.001000"]
    assert one.row(in_gbits=True).split()[3] == f"{1000 * (1 << 20) * 8 / 1e9:.2f}"
    assert "Gb/sec" in header(plan(), in_gbits=True)
