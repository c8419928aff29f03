# SPDX-License-Identifier: BSD-2-Clause
"""Takes a lab down when the process that made it is gone: it waits for the end of its input."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.stdin.buffer.read()
    from livedma.lab.guest import remove

    remove(Path(sys.argv[1]))
