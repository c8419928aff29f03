# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Mapping
from typing import Any

def opcode_table() -> list[tuple[int, str, int, tuple[str, ...], str, int]]:
    """Returns [(code, name, transport, headers, operation, role)] of every opcode."""

def header_bytes() -> dict[str, int]:
    """Returns {header name: its length}, in wire order."""

class Packet:
    """Shows one decoded packet, and holds a copy of its frame. Fields of layers that it lacks are
    0.
    """

    @property
    def frame(self) -> bytes:
        """Holds the bytes that were captured."""
    @property
    def time_ns(self) -> int:
        """Is the time that the capture gave the frame, in ns."""
    @property
    def length(self) -> int:
        """Counts the frame's bytes on the wire, where a capture may have kept fewer."""
    @property
    def src(self) -> str:
        """Is the IP address or GID of the sender, as text."""
    @property
    def dst(self) -> str:
        """Is the IP address or GID of the receiver, as text."""
    @property
    def udp_length(self) -> int:
        """Is the UDP header's length field; 0 in RoCEv1."""
    @property
    def udp_checksum(self) -> int:
        """Is the UDP header's checksum field; 0 in RoCEv1."""
    @property
    def ip_version(self) -> int:
        """Is 4 or 6; a GRH counts as 6."""
    @property
    def opcode(self) -> int:
        """Is the BTH's opcode."""
    @property
    def opcode_name(self) -> str | None:
        """Is the kernel's name of the opcode without IB_OPCODE_; None if there is no such
        opcode.
        """
    @property
    def bth_flags(self) -> int:
        """Is the BTH's second byte: solicited event, migration state, pad count, transport
        version.
        """
    @property
    def dest_qp(self) -> int:
        """Is the number of the queue pair that the packet goes to."""
    @property
    def psn(self) -> int:
        """Is the packet sequence number."""
    @property
    def src_qp(self) -> int | None:
        """Is the number of the sender's queue pair; None if the packet has no DETH."""
    @property
    def icrc_ok(self) -> bool | None:
        """Tells whether the ICRC is right; None: that cannot be known."""
    @property
    def payload(self) -> bytes:
        """Holds the part of the payload that was captured, without pad."""
    @property
    def error(self) -> str | None:
        """Says what is wrong with the packet, and at which byte; None: nothing is."""
    def to_dict(self, n: int = 1) -> dict[str, Any]:
        """Returns the packet as `--format json` prints it, without what is inside its payload."""

class Batch:
    """Holds a bounded number of decoded packets. It is reused: filling it again invalidates what
    was read from it.
    """

    def __init__(self, capacity: int = 2048, frame_bytes: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Packet: ...
    @property
    def other(self) -> int:
        """Counts the frames of the last fill that were not RoCE."""
    @property
    def start_ns(self) -> int:
        """Is the time of the first packet; 0 if there is none."""
    def reset(self) -> None:
        """Empties the batch."""
    def add(self, link: int, time_ns: int, direction: int, frame: bytes, length: int) -> bool:
        """Copies one frame and decodes it into the batch. Returns False if the batch is full."""
    def tally(self) -> tuple[int, int]:
        """Returns (packets with a bad ICRC, packets with another error than being cut by the
        capture).
        """
    def carriers(self) -> list[int]:
        """Returns the indexes of the packets that may carry a message of an upper layer from its
        start.
        """
    def json(self, first: int, inside: Mapping[int, bytes]) -> bytearray:
        """Returns lines of JSON; packet i has number first + i; inside: {i: b'"cm":{…}'} adds
        members to its object.
        """
    def text(self, inside: Mapping[int, bytes], color: bool, start_ns: int) -> bytearray:
        """Returns lines of text; inside: {i: b'a phrase'}."""

def decode(
    frame: bytes, link: int = 1, length: int | None = None, time_ns: int = 0
) -> Packet | None:
    """Decodes one frame. Returns None if it is not RoCE. length: its bytes on the wire, if it was
    cut.
    """

def encode(
    opcode: int,
    *,
    src: str,
    dst: str,
    payload: bytes = b"",
    version: str = "roce2",
    sport: int = 49152,
    dport: int = 4791,
    tos: int = 0,
    ttl: int = 64,
    ip_id: int = 0,
    solicited: bool = False,
    migreq: bool = True,
    pkey: int = 0xFFFF,
    fecn: bool = False,
    becn: bool = False,
    dest_qp: int = 0,
    ack_req: bool = False,
    psn: int = 0,
    reth: Mapping[str, int] | None = None,
    aeth: Mapping[str, Any] | None = None,
    deth: Mapping[str, int] | None = None,
    atomic: Mapping[str, int] | None = None,
    atomic_ack: Mapping[str, int] | None = None,
    imm: int = 0,
    ieth: Mapping[str, int] | None = None,
    rdeth: Mapping[str, int] | None = None,
    xrceth: Mapping[str, int] | None = None,
    feth: Mapping[str, int] | None = None,
) -> bytes:
    """Builds a packet from its IP header (or GRH) to its ICRC. Headers are dicts with the keys of
    the JSON form.
    """
