"""From options to what a server and its controller are made of."""

from __future__ import annotations

import argparse

from livedma.cli.serve.places import default_control
from livedma.cli.serve.settings import WrongUse
from livedma.control.limits import Objectives
from livedma.control.running import Options as Steering
from livedma.nfs.config import Config
from livedma.nfs.service import Wishes
from livedma.rpc.rdma_server import Options

__all__ = ["steering", "wishes"]


def _config(args: argparse.Namespace) -> Config:
    grace_s = args.grace or args.lease
    if grace_s < args.lease:
        raise WrongUse("--grace is no shorter than --lease")
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


def wishes(args: argparse.Namespace) -> Wishes:
    """WrongUse: what was asked for cannot be."""
    if args.directory is None:
        raise WrongUse("DIR is missing: what is to be exported?")
    return Wishes(
        addresses=args.listen,
        tcp_port=args.tcp,
        rdma_port=args.rdma,
        allow=args.allow,
        threads=args.threads,
        state=args.state,
        control=args.control or default_control(),
        config=_config(args),
        rdma=Options(
            window_bytes=args.window,
            mapped_bytes=int(args.window * args.mapped),
            buffer_bytes=args.buffer,
            credits=args.credits,
            workers=args.threads,
        ),
    )


def steering(args: argparse.Namespace) -> Steering:
    p99_s = args.objective_p99
    return Steering(
        policy=args.policy,
        dry_run=args.dry_run,
        budget_bytes=args.budget,
        monitor=args.monitor,
        history=args.web is not None,
        objectives=Objectives(None if p99_s is None else round(p99_s * 1e9)),
    )
