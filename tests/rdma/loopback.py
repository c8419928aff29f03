"""Addresses of this host that no other test run uses at the same time."""

import os

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
HERE, THERE, ELSEWHERE, NOBODY = (f"{_NET}.{host}" for host in (1, 2, 3, 77))
