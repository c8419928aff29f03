"""livedma demo: two hosts on this machine, RoCEv2 between them, captured live."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from typing import Any

from livedma.errors import LivedmaError, PrivilegeError

_BULK_PACKETS = 100_000
_BULK_RATE = 50_000  # packets a second: what any machine keeps up with


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="two hosts on this machine, RoCEv2 between them, captured live",
        description="Makes two hosts in network namespaces, lets them talk RoCEv2 with a packet "
        "lost on the way, captures it live with BPF and says what happened. Ends by itself.",
        epilog="example:\n  sudo livedma demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def _talk(client: Any, server: Any) -> int:
    """Holds the scripted conversation; returns how many packets went out."""
    from livedma.lab.conversation import SPORT, conversation
    from livedma.lab.traffic import ROCE_PORT, receiver_socket, udp_socket

    sent = 0
    with (
        udp_socket(client, sport=SPORT) as from_client,
        udp_socket(server, sport=SPORT) as from_server,
        receiver_socket(client),
        receiver_socket(server),
    ):
        for step in conversation(client.ipv4, server.ipv4):
            if step.is_lost:
                continue
            sender, to = (from_client, server) if step.from_client else (from_server, client)
            # The kernel writes the IP and UDP headers: the script's are the same, for the ICRC.
            sender.sendto(step.packet[28:], (to.ipv4, ROCE_PORT))
            sent += 1
            time.sleep(0.005)  # slow enough to be watched
    return sent


def _ending_with(task: Any, capture: Any) -> threading.Thread:
    """Ends the capture when the task is done, however it is done."""

    def wait() -> None:
        try:
            task.result()
        finally:
            capture.stop()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def _watch(server: Any, client: Any) -> None:
    from livedma._native.flow import FlowTable
    from livedma.capture.live import Capture
    from livedma.capture.sinks import open_sink
    from livedma.wire.summary import render, summarize

    flows = FlowTable()
    sink = open_sink("text", sys.stdout.buffer, color=sys.stdout.isatty())
    with server.inside(), Capture(server.iface, hook="xdp", interval_s=0.05) as capture:
        print(f"capturing on the server's {server.iface}: {capture.modes}\n", flush=True)
        talk = client.start(lambda: _talk(client, server))
        ending = _ending_with(talk, capture)
        for batch in capture:
            flows.add(batch)
            sink.write(batch)
            sys.stdout.flush()
        ending.join()
        lost = capture.counters().ring_dropped
    print(f"\n{talk.result()} packets sent, {lost} lost by the capture. What happened:\n")
    print(render(summarize(flows)))


def _bulk(server: Any, client: Any) -> None:
    from livedma.capture.live import Capture
    from livedma.lab.traffic import receiver_socket, udp_flow, udp_socket

    print(
        f"{_BULK_PACKETS:,} packets more, {_BULK_RATE:,} a second, 128 bytes of each:",
        flush=True,
    )
    captured = 0
    with (
        udp_socket(client) as sender,
        receiver_socket(server) as receiver,
        server.inside(),
        Capture(server.iface, direction="rx", hook="xdp", snaplen=128) as capture,
    ):
        flow = udp_flow(client, server)
        send = client.start(lambda: flow.send(sender, _BULK_PACKETS, rate=_BULK_RATE))
        arrived = server.start(lambda: flow.receive(receiver, _BULK_PACKETS))
        ending = _ending_with(arrived, capture)
        for batch in capture:
            captured += len(batch)
        ending.join()
        lost = capture.counters().ring_dropped
    print(
        f"{send.result():,} sent, {arrived.result()['packets']:,} arrived, "
        f"{captured:,} captured, {lost:,} lost by the capture"
    )


def run(args: argparse.Namespace) -> int:
    if os.geteuid():
        raise PrivilegeError("making hosts and loading BPF programs needs root")
    from livedma.lab.hosts import two_hosts

    with contextlib.ExitStack() as stack:
        try:
            client, server = stack.enter_context(two_hosts())
        except PermissionError as error:
            raise LivedmaError(
                f"root may not make network namespaces here ({error.strerror}): "
                "run it outside the container"
            ) from None
        print(
            f"two hosts on this machine: client {client.ipv4}, server {server.ipv4}; "
            "RoCEv2 over veth, MTU 1500"
        )
        _watch(server, client)
        _bulk(server, client)
    return 0
