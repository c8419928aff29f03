# SPDX-License-Identifier: BSD-2-Clause
"""`livedma guard` as people use it: what stays, what goes, what is said."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from guard_lab import PINS, Lab, eventually, frame, guards, inside, ip, require_bpf

from livedma import cli
from livedma.capture.guard import Guard, Rule
from livedma.cli import main
from unprivileged import as_nobody

pytestmark = pytest.mark.slow


@pytest.fixture
def lab() -> Iterator[Lab]:
    require_bpf()
    lab = Lab()
    try:
        yield lab
    finally:
        lab.command("off")
        lab.close()


def nothing_is_left(lab: Lab) -> bool:
    """The kernel frees programs a little after the command."""
    return (
        not lab.home.exists()
        and "xdp" not in ip("-n", lab.inner, "link", "show", "in0")
        and eventually(lambda: not guards())
    )


def listed(lab: Lab) -> dict[str, object]:
    return json.loads(lab.command("--json").stdout)


def test_guard_outlives_the_command(lab: Lab) -> None:
    assert lab.command("qps", "add", "7,0x11").stdout == "in0: 2 queue pairs known\n"
    added = lab.command("add", "drop", "--qp", "unknown", "--from", "10.99.0.0/24")
    assert added.returncode == 0
    assert added.stdout == "in0: rule 1: drop from 10.99.0.0/24 qp unknown (native XDP)\n"
    assert added.stderr == ""
    assert lab.passes(frame())
    assert not lab.passes(frame(qp=8))
    assert lab.command("add", "limit", "2k/s", "--op", "send,ACK", "--at", "1").returncode == 0
    found = listed(lab)
    assert found["on"] is True
    assert found["mode"] == "native"
    assert found["default"] == "pass"
    assert found["known_qps"] == [7, 17]
    first, second = found["rules"]
    assert (first["action"], first["rate"], first["burst"]) == ("limit", 2000, 2000)
    assert first["op"] == ["SEND", "ACK"]
    assert (second["from"], second["qp"]) == ("10.99.0.0/24", "unknown")
    assert (second["packets"], second["dropped"]) == (1, 1)
    assert 0 <= second["seconds_ago"] < 60
    text = lab.command().stdout
    assert text.startswith("in0: native XDP, 2 rules, 2 queue pairs known, 0 malformed packets\n")
    assert "limit 2000/s:2000" in text
    assert lab.command("off").stdout == "in0: the guard is off\n"
    assert nothing_is_left(lab)
    assert lab.command().stdout == "in0: no guard\n"
    assert lab.passes(frame(qp=8))


def test_removing_the_last_rule_takes_everything_away(lab: Lab) -> None:
    lab.command("add", "drop", "--op", "READ")
    lab.command("add", "drop", "--op", "WRITE")
    assert lab.command("remove", "1").stdout == "in0: removed rule 1: drop op READ\n"
    assert [rule["op"] for rule in listed(lab)["rules"]] == [["WRITE"]]
    assert "the guard is off" in lab.command("remove", "1").stdout
    assert nothing_is_left(lab)
    lab.command("add", "drop")
    assert lab.command("remove", "--all").returncode == 0
    assert nothing_is_left(lab)


def test_unknown_without_known_queue_pairs_is_pointed_out(lab: Lab) -> None:
    added = lab.command("add", "drop", "--qp", "unknown")
    assert added.returncode == 0
    assert "no queue pair is known yet" in added.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("remove", "3"), "livedma: in0 has no rule 3: 'livedma guard in0' lists those that "),
        (("add", "drop", "--at", "5"), "livedma: a rule cannot become number 5: in0 has 0, "),
    ],
)
def test_what_is_not_there(lab: Lab, words: tuple[str, ...], text: str) -> None:
    done = lab.command(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(text)
    assert done.stderr.count("\n") == 1
    assert listed(lab)["on"] is False


@pytest.mark.parametrize("by_link", [False, True])
def test_foreign_program_is_named_and_left_alone(lab: Lab, by_link: bool, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text(
        '__attribute__((section("xdp"), used)) int other_xdp(void *c) { return 2; }\n'
        'char _license[] __attribute__((section("license"), used)) = "GPL";\n'
    )
    program = str(tmp_path / "other.o")
    subprocess.run(["clang", "-target", "bpf", "-O2", "-c", source, "-o", program], check=True)
    if by_link:
        with inside(lab.inner), Guard("in0") as guard:
            guard.add(Rule("allow"))
        # Under another name it is just some link of some program.
        (lab.home / "link").rename(PINS.parent.parent / lab.inner)
        name = "guard_xdp"
    else:
        ip("-n", lab.inner, "link", "set", "in0", "xdp", "obj", program, "sec", "xdp")
        name = "other_xdp"
    try:
        shown = json.loads(ip("-n", lab.inner, "-j", "link", "show", "in0"))[0]["xdp"]
        done = lab.command("add", "drop")
        assert done.returncode == 1
        assert f"in0 already runs XDP program {shown['prog']['id']} ({name})" in done.stderr
        assert ("bpftool link detach id" if by_link else "xdp off") in done.stderr
        assert done.stderr.count("\n") == 1
        assert f"program {shown['prog']['id']} ({name})" in lab.command().stdout
        assert json.loads(ip("-n", lab.inner, "-j", "link", "show", "in0"))[0]["xdp"] == shown
        assert lab.passes(frame())
        assert not lab.home.exists()
    finally:
        (PINS.parent.parent / lab.inner).unlink(missing_ok=True)


def test_deleted_interface_is_cleaned_up(lab: Lab) -> None:
    lab.command("add", "drop")
    assert guards()
    ip("-n", lab.inner, "link", "del", "in0")
    done = lab.command()
    assert done.returncode == 1
    assert done.stderr == (
        "livedma: there is no interface in0: 'ip link' lists those that are there\n"
    )
    assert not lab.home.exists()
    assert eventually(lambda: not guards())


def test_interrupted_start_is_cleaned_up(lab: Lab) -> None:
    lab.command("add", "drop")
    (lab.home / "link").unlink()
    assert listed(lab)["on"] is False
    assert not lab.home.exists()


def test_another_version_is_told_and_can_be_taken_away(lab: Lab) -> None:
    lab.command("add", "drop")
    (lab.home / "buckets").unlink()
    done = lab.command("add", "drop")
    assert done.returncode == 1
    assert "another version of livedma" in done.stderr
    assert lab.command("off").returncode == 0
    assert not lab.home.exists()


def test_renamed_interface_keeps_its_guard(lab: Lab) -> None:
    lab.command("add", "drop")
    ip("-n", lab.inner, "link", "set", "in0", "down")
    ip("-n", lab.inner, "link", "set", "in0", "name", "in.5")
    with inside(lab.inner), Guard("in.5") as guard:
        assert len(guard.rules()) == 1
        guard.off()


def test_commands_wait_for_each_other(lab: Lab) -> None:
    threads = [
        threading.Thread(target=lab.command, args=("add", "drop", "--qp", str(qp)))
        for qp in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rule["qp"][0] for rule in listed(lab)["rules"]) == list(range(8))


def test_generic_where_the_driver_refuses() -> None:
    require_bpf()
    lab = Lab(queues=(2, 1))  # a veth wants as many receive queues as its peer sends from
    try:
        assert "(generic XDP)" in lab.command("add", "drop", "--qp", "7").stdout
        assert listed(lab)["mode"] == "generic"
        assert lab.send([frame(qp=8), frame()]) == [frame(qp=8)]
        assert lab.command("off").returncode == 0
    finally:
        lab.close()


def test_large_frames() -> None:
    require_bpf()
    lab = Lab(mtu=9000)
    try:
        assert "(native XDP)" in lab.command("add", "drop", "--qp", "7").stdout
        large = frame(qp=8, payload=bytes(4096))
        assert lab.send([large, frame(payload=bytes(4096))]) == [large]
        found = listed(lab)
        assert found["rules"][0]["bytes"] == found["unmatched"]["bytes"] == len(large)
        assert lab.command("off").returncode == 0
    finally:
        lab.close()


@pytest.mark.parametrize(
    "words",
    [
        "add",
        "add explode",
        "add limit",
        "add drop 5/s",
        "add limit 0/s",
        "add limit 11M/s",
        "add limit fast",
        "add drop --burst 5",
        "add drop --from 10.0.0.300",
        "add drop --qp seven",
        "add drop --qp 0x1000000",
        "add drop --qp 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
        "add drop --op FLY",
        "add drop --malformed --qp 5",
        "add drop --at 0",
        "remove",
        "remove 0",
        "remove 1 --all",
        "qps",
        "qps add",
        "qps add x",
        "explode",
    ],
)
def test_wrong_use(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["guard", "lo", *words.split()])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("livedma guard")


@pytest.mark.parametrize("words", [[], ["add"], ["remove"], ["qps"], ["off"]])
def test_help_has_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["guard", "eth0", *words, "--help"])
    assert stop.value.code == 0
    assert "livedma guard eth0 " + " ".join(words) in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["add", "drop"], ["off"], ["qps", "set", "5"]])
def test_without_privilege(words: list[str]) -> None:
    require_bpf()  # root can give it up
    done = subprocess.run(
        [*as_nobody(), sys.executable, "-m", cli.__name__, "guard", "lo", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    again = shlex.join([sys.executable, "-m", "livedma", "guard", "lo", *words])
    assert done.stderr == f"livedma: guarding an interface needs root: sudo {again}\n"
    assert done.stdout == ""
