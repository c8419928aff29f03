# SPDX-License-Identifier: BSD-2-Clause
"""livedma serve --config: what a file may say, and what is said of one that is wrong."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from livedma.cli.serve import example
from livedma.cli.serve.config_file import ConfigError
from livedma.cli.serve.reload import LIVE
from livedma.cli.serve.settings import Settings, keys

PACKAGING = Path(__file__).parents[2] / "packaging"


def settled(tmp_path: Path, text: str, *words: str) -> Any:
    file = tmp_path / "livedma.toml"
    file.write_text(text)
    return Settings.of(["--config", str(file), *words]).values


def test_what_a_file_says(tmp_path: Path) -> None:
    values = settled(
        tmp_path,
        'directory = "/srv/data"\nwindow = "16MiB"\nmapped = 0.5\nlisten = ["10.0.0.1", "::1"]\n'
        'tcp = "off"\nread-only = true\nallow = ["10.0.0.0/8"]\nlease = 30\n'
        'objective-p99 = "10ms"\nanonymous = "7:8"\nweb = true\npolicy = "migrate"\n',
    )
    assert (values.directory, values.window, values.mapped) == (Path("/srv/data"), 16 << 20, 0.5)
    assert (values.listen, values.tcp, values.rdma) == (["10.0.0.1", "::1"], None, 20049)
    assert (values.read_only, values.lease, values.objective_p99) == (True, 30, 0.01)
    assert [str(one) for one in values.allow] == ["10.0.0.0/8"]
    assert (values.anonymous, values.policy) == ((7, 8), "migrate")
    assert values.web is not None and values.sync is False


def test_the_command_line_counts_more(tmp_path: Path) -> None:
    text = 'directory = "/srv/a"\nlisten = ["10.0.0.1"]\ntcp = 12049\npolicy = "static"\n'
    values = settled(tmp_path, text, "/srv/b", "--listen", "10.0.0.2", "--tcp", "off")
    assert (values.directory, values.listen, values.tcp) == (Path("/srv/b"), ["10.0.0.2"], None)
    assert values.policy == "static"


def test_what_is_not_said_is_as_ever() -> None:
    assert vars(Settings.of(["/srv/data"]).values) == {
        **vars(Settings.of([]).values),
        "directory": Path("/srv/data"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nwindw = 3\n", ":2: windw: there is no such option; did you mean window?"),
        ("read_only = true\n", ":1: read_only: there is no such option; did you mean read-only?"),
        ("flux-capacitor = 1\n", "no such option; `livedma serve --help` lists them"),
        ("\n[serve]\ntcp = 1\n", ":2: [serve]: there are no tables here"),
        ("serve.tcp = 1\n", ":1: [serve]: there are no tables here"),
        ('window = "64XB"\n', ":1: window: '64XB' is no size: write 64, 4KiB or 1MiB"),
        ("tcp = 123456\n", ":1: tcp: '123456' is no port"),
        ("threads = 65\n", ":1: threads: '65' is out of range: 1 to 64"),
        ('buffer = "3GiB"\n', ":1: buffer: '3GiB' is out of range: 4KiB to 64MiB"),
        ('store-delay = "2h"\n', ":1: store-delay: '2h' is no time"),
        ('store-delay = "4000s"\n', ":1: store-delay: '4000s' is out of range: 0s to 3600s"),
        ("tcp = true\n", "tcp: this is true or false, and it has to be a string or a number"),
        ('read-only = "yes"\n', "this is a string, and it has to be true or false"),
        ('listen = "::1"\n', 'listen: this is a string, and it has to be a list, such as ["::1"]'),
        ("window = [1]\n", "window: this is a list, and it has to be a string or a number"),
        ("allow = [[]]\n", "allow: this is a list, and it has to be a string or a number"),
        ("lease = 2026-01-01\n", "lease: this is a time, and it has to be a string or a number"),
        ("policy.name = 1\n", "policy: this is a table, and it has to be a string or a number"),
        ('policy = "best"\n', "policy: 'best' is none of static, extend, spread, migrate"),
        ('config = "x"\n', ":1: config: there is no such option"),
        ("tcp = 1\ntcp = 2\n", ":2:8: this is no TOML: cannot overwrite a value"),
        ("tcp = \n", ":1:7: this is no TOML: invalid value"),
        ('listen = ["a"', ":1: this is no TOML: "),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        settled(tmp_path, text)
    assert str(error.value).startswith(str(tmp_path / "livedma.toml"))
    assert said in str(error.value)


def test_all_mistakes_are_named_at_once_in_their_order(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        settled(tmp_path, "wndow = 1\nlease = 0\ntcp = 1.5\n")
    found = str(error.value).splitlines()
    assert [line.split(":")[1] for line in found] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"\xff = 1", "byte 0 is no UTF-8")]
)
def test_no_text(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "livedma.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        Settings.of(["--config", str(file)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcpp = 1\n", "livedma.toml:1: tcpp: there is no such option; did you mean tcp?"),
        ("lease = 60\ngrace = 30\ndirectory = '.'\n", "--grace 30 is shorter than --lease 60"),
        ("", "DIR is missing"),
    ],
)
def test_the_command_ends_as_for_wrong_use(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "livedma.toml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "livedma.cli", "serve", "--config", "livedma.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_the_example_is_current() -> None:
    """`make docs` renews it."""
    assert (PACKAGING / "livedma.toml").read_text() == example.render()


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    lines = (PACKAGING / "livedma.toml").read_text().splitlines()
    code = [line[1:] if line[:1] == "#" and line[1:2].isalpha() else line for line in lines]
    text = "\n".join(code)
    assert set(tomllib.loads(text)) == set(keys())
    values, plain = settled(tmp_path, text), Settings.of(["/srv/data"]).values
    for option in keys().values():
        if option.default not in (None, []):
            assert getattr(values, option.dest) == getattr(plain, option.dest), option.dest


def test_what_a_reload_changes_is_there() -> None:
    assert set(keys()) > LIVE
