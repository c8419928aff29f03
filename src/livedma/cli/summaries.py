# SPDX-License-Identifier: BSD-2-Clause
"""Holds what `livedma --help` says of each command, so that the help imports no command.

Each line is the `help` that the command registers; tests/cli/test_summaries.py compares the two.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SUMMARIES", "register_all"]

SUMMARIES = {
    "demo": "sessions pile up on one connection, and its DMA memory grows under them",
    "doctor": "what this machine can do, and what would help",
    "mem": "what each process pins; huge pages, fragmentation, limits",
    "capture": "capture RoCE packets live, with BPF or from a livedma device",
    "decode": "decode a pcap or pcapng file",
    "guard": "drop, limit or allow RoCE before the stack sees it",
    "perf": "bandwidth and latency, with perftest's columns",
    "rping": "ping over RDMA, with librdmacm's rping or alone",
    "serve": "export a directory over NFSv4.1 and 4.2",
    "reload": "have a server read its configuration again",
    "load": "many storage sessions against an NFS server, with latencies",
    "top": "a server on the terminal: connections, sessions and decisions, live",
    "watch": "sessions of any NFS/RDMA server or client on this host",
    "why": "what limits a server's connections, or makes a session slow",
    "extend": "map more DMA memory for a connection of a running server",
    "shrink": "take DMA memory from a connection of a running server",
    "migrate": "move the sessions of a connection to a larger one",
    "policy": "say or set the policy of a running server",
    "experiment": "measure what a way to use memory costs, and get an answer",
    "lab": "two guests with a real kernel's RDMA stack, in QEMU",
    "completion": "complete command lines in bash, zsh, fish or tcsh",
    "man": "manual pages, of all that --help says",
}


def register_all(commands: Any) -> None:
    """Adds every command with its summary alone: enough for the help, and for a wrong name."""
    for name, summary in SUMMARIES.items():
        commands.add_parser(name, help=summary, add_help=False)
