# SPDX-License-Identifier: BSD-2-Clause
"""Running commands without privilege."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from needs import needs

__all__ = ["NOBODY", "as_nobody", "as_user"]

NOBODY = 65534
_OTHERS_MAY_PASS = 0o001


def as_nobody(*capabilities: str, uid: int = NOBODY) -> list[str]:
    """What to put in front of a command line. capabilities: that it keeps all the same.

    uid: another user than nobody, for limits that are counted by user.
    """
    needs(os.geteuid() == 0, "only root can become somebody else")
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    above = Path(sys.executable).resolve().parents
    if not all(directory.stat().st_mode & _OTHERS_MAY_PASS for directory in above):
        # The interpreter is in somebody's home: they may read it, and that is all they may.
        capabilities += ("dac_read_search",)
    if capabilities:
        kept = ",".join(f"+{name}" for name in capabilities)
        command += [f"--inh-caps={kept}", f"--ambient-caps={kept}"]
    return command


def as_user(memlock: int) -> list[str]:
    """Does the same as `as_nobody`, as a user that no other test is, who may pin so many bytes."""
    return ["prlimit", f"--memlock={memlock}:{memlock}", *as_nobody(uid=200_000 + os.getpid())]
