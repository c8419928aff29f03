# SPDX-License-Identifier: BSD-2-Clause
"""Runs the pynfs 4.1 suite against `livedma serve`, and compares with docs/conformance.md.

    python tests/pynfs.py DIR [TEST...]

DIR is a checkout of pynfs, which is left as it is: a copy of it is built. Exit status 1 if
something fails without a reason in the document, or passes though the document says otherwise.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "conformance.md"
# Debian's, which has pynfs's modules as packages.
PYTHON = os.environ.get("PYNFS_PYTHON", "/usr/bin/python3")
MODULES = {"ply": "python3-ply", "xdrlib": "python3-standard-xdrlib"}
# Some tests wait for a lease to end, and a little longer.
LEASE_S = 12
LIMIT_S = 1800


def main(directory: str, *tests: str) -> int:
    checkout = Path(directory)
    if not (checkout / "nfs4.1" / "testserver.py").is_file():
        print(f"{directory} is no checkout of pynfs: it has no nfs4.1/testserver.py")
        return 2
    if missing := missing_packages():
        print(f"pynfs needs more: apt-get install {' '.join(missing)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="livedma-pynfs-") as scratch:
        suite = built(checkout, Path(scratch))
        report = run(suite, Path(scratch), tests or ("all",))
    return judge(report, reasons())


def missing_packages() -> list[str]:
    def has(module: str) -> bool:
        done = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False)
        return done.returncode == 0

    return [package for module, package in MODULES.items() if not has(module)]


def built(checkout: Path, scratch: Path) -> Path:
    copy = scratch / "pynfs"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git"))
    done = subprocess.run(
        [PYTHON, "setup.py", "build"],
        cwd=copy,
        env={**os.environ, "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"pynfs cannot be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return copy / "nfs4.1"


def run(suite: Path, scratch: Path, tests: tuple[str, ...]) -> dict[str, Any]:
    export = scratch / "export"
    export.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--listen", "127.0.0.1", "--tcp", str(port), "--rdma", "off"]
    options += ["--state", str(scratch / "state"), "--control", str(scratch / "control")]
    # The suite is root and makes devices.
    options += ["--squash", "none", "--lease", str(LEASE_S), "--delegations"]
    server = subprocess.Popen(
        [sys.executable, "-m", "livedma.cli", "serve", str(export), *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        said = [server.stderr.readline() for _ in range(3)]
        if "control" not in said[-1]:
            raise SystemExit(f"the server did not start: {''.join(said)}{server.stderr.read()}")
        print(f"pynfs {' '.join(tests)}: a few minutes, since leases have to end", flush=True)
        results = scratch / "results.json"
        done = subprocess.run(
            [
                PYTHON,
                "testserver.py",
                f"127.0.0.1:{port}/",
                "--maketree",
                f"--json={results}",
                *tests,
            ],
            cwd=suite,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
        if server.poll() is not None:
            raise SystemExit(f"the server ended: {server.stderr.read()}")
        if not results.exists():
            raise SystemExit(f"the suite ended early:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        report: dict[str, Any] = json.loads(results.read_text())
        return report
    finally:
        server.terminate()
        _, said = server.communicate()
        if said:
            print(f"the server said:\n{said}")


def reasons() -> dict[str, str]:
    """By the test's code: rows of tables that begin with one."""
    rows = re.findall(r"^\| ([A-Z]+\w*) \| (.+?) \|$", DOCUMENT.read_text(), re.MULTILINE)
    return dict(rows)


def judge(report: dict[str, Any], known: dict[str, str]) -> int:
    run = [test for test in report["testcase"] if "skipped" not in test]
    failed = {test["code"]: test["failure"]["message"] for test in run if "failure" in test}
    passed = [test["code"] for test in run if "failure" not in test]
    for code, message in sorted(failed.items()):
        print(
            f"{code:9}{known.get(code, 'no reason is known')}\n         {' '.join(message.split())}"
        )
    stale = sorted(set(known) & set(passed))
    for code in stale:
        print(f"{code:9}passes, though {DOCUMENT.name} says: {known[code]}")
    unexplained = sorted(set(failed) - set(known))
    print(f"{len(run)} tests: {len(passed)} passed, {len(failed)} failed", end="")
    print(f", {len(unexplained)} of them without a reason" if failed else "")
    return 1 if unexplained or stale else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("which checkout? make pynfs PYNFS=DIR")
    raise SystemExit(main(*sys.argv[1:]))
