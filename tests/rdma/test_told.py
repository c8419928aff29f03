# SPDX-License-Identifier: BSD-2-Clause
"""What processes of tests are told, they hear, however fast it comes."""

from __future__ import annotations

import subprocess
import sys


def test_a_line_behind_another_is_seen() -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; from told import Told; told = Told()\n"
    code += "print(told.line(), told.has_more(), told.line(), told.has_more(), [told.line()])"
    done = subprocess.run(
        [sys.executable, "-c", code], input="go\nstop\n", capture_output=True, text=True
    )
    assert done.stdout.split() == ["go", "True", "stop", "True", "['']"], done.stderr
