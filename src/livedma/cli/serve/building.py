# SPDX-License-Identifier: BSD-2-Clause
"""Turns options into what a server and its controller are made of."""

from __future__ import annotations

import argparse
from typing import Literal

from livedma.cli.serve.bounds import WrongUse, check_memory
from livedma.cli.serve.places import default_control
from livedma.control.diagnose.limits import Objectives
from livedma.control.running import Options as Steering
from livedma.memory import numa
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import ServiceOptions
from livedma.rpc.rdma_memory import LATE_REPLIES, Kind
from livedma.rpc.rdma_server import Options

__all__ = ["service_options", "steering"]


def _config(args: argparse.Namespace) -> Config:
    grace_s = args.grace or args.lease
    if grace_s < args.lease:
        raise WrongUse(
            f"--grace {grace_s} is shorter than --lease {args.lease}: a client that is silent for "
            "a lease could not reclaim"
        )
    return Config(
        lease_s=args.lease,
        grace_s=grace_s,
        read_only=args.read_only,
        sync_metadata=args.sync,
        delegations=args.delegations,
        squash=args.squash,
        anonymous_uid=args.anonymous[0],
        anonymous_gid=args.anonymous[1],
        slots=args.slots,
        store_delay_s=args.store_delay,
        store_width=args.store_width or 0,
    )


def service_options(args: argparse.Namespace) -> ServiceOptions:
    """Returns what the options ask of a server. Raises WrongUse if no server can do it."""
    if args.directory is None:
        raise WrongUse("DIR is missing: what is to be exported?")
    if args.tcp is None and args.rdma is None:
        raise WrongUse("--tcp off and --rdma off leave nothing to serve: drop one of them")
    if args.rdma is not None:
        check_memory(args, Options().reserve, LATE_REPLIES)
        _check_node(args.numa)
    return ServiceOptions(
        addresses=list(dict.fromkeys(args.listen)),
        tcp_port=args.tcp,
        rdma_port=args.rdma,
        allow=args.allow,
        threads=args.threads,
        pin_limit=args.pin_limit,
        state=args.state,
        control=args.control or default_control(),
        config=_config(args),
        rdma=Options(
            window_bytes=args.window,
            mapped_bytes=int(args.window * args.mapped),
            buffer_bytes=args.buffer,
            inline_bytes=args.inline,
            credits=args.credits,
            workers=args.threads,
            kind=Kind(args.pages, None if args.numa == "auto" else args.numa),
        ),
    )


def _check_node(node: int | Literal["auto"]) -> None:
    if node != "auto" and not numa.has_node(node):
        raise WrongUse(f"--numa {node}: there is no such node; `ls {numa.NODES}` shows them")


def steering(args: argparse.Namespace) -> Steering:
    p99_s = args.objective_p99
    return Steering(
        policy=args.policy,
        dry_run=args.dry_run,
        budget_bytes=args.budget,
        monitor=args.monitor,
        ahead_s=args.ahead,
        history=args.web is not None,
        objectives=Objectives(None if p99_s is None else round(p99_s * 1e9)),
    )
