# SPDX-License-Identifier: BSD-2-Clause
"""Lists BPF programs on an interface by bpf(2) itself: Debian 12's libbpf does not know tcx."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from livedma.doctor.netlink import Entry, bpf_filters

__all__ = ["Program", "of_link", "program_name"]

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280}
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _PROG_QUERY = 13, 15, 16
_LINK_GET_FD_BY_ID, _LINK_GET_NEXT_ID = 30, 31
_LINK_XDP = 6
_LINKS_MOST = 4096
_TCX = {"ingress": 46, "egress": 47}
_CLSACT = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}
_PROGRAMS_MOST = 64
_OWN = ("monitor", "capture_xdp", "capture_tc_ingr", "capture_tc_egre", "guard_xdp")


@dataclass(frozen=True)
class Program:
    hook: str  #: "native XDP", "generic XDP", "tcx ingress", "tc egress", …
    id: int | None  #: None: the kernel does not say
    name: str  #: empty: this process may not know it
    remove: str  #: the command that takes it off, without sudo

    @property
    def is_ours(self) -> bool:
        return self.name in _OWN

    def __str__(self) -> str:
        name = self.name or "its name takes root"
        return f"{self.hook} {'?' if self.id is None else self.id} ({name})"


def of_link(entry: Entry) -> tuple[list[Program], bool]:
    """Returns the programs on an interface of netlink's, and whether those may be all."""
    index, name = entry.index, entry.name
    found = [*_xdp(entry), *_clsact(index, name)]
    try:
        return [*found, *_tcx(index, name)], True
    except PermissionError:
        return found, False
    except OSError:  # a kernel without tcx
        return found, True


def _xdp(entry: Entry) -> Iterator[Program]:
    # The kernel names the program of each mode; before 4.20 only the one that there is.
    ids = {mode: number for mode, number in entry.xdp.items() if mode != "any"}
    if not ids and "any" in entry.xdp:
        ids = {"native": entry.xdp["any"]}
    for mode, number in ids.items():
        by_link = _xdp_link(entry.index, number)
        remove = (
            f"bpftool link detach id {by_link}"
            if by_link
            else f"ip link set dev {entry.name} {'xdp' if mode == 'native' else 'xdp' + mode} off"
        )
        yield Program(f"{mode} XDP", number, program_name(number), remove)


def _tcx(index: int, name: str) -> Iterator[Program]:
    for hook, attach_type in _TCX.items():
        for number, link in _query(index, attach_type):
            remove = (
                f"bpftool link detach id {link}"
                if link
                else f"bpftool net detach tcx_{hook} dev {name}"
            )
            yield Program(f"tcx {hook}", number, program_name(number), remove)


def _clsact(index: int, name: str) -> Iterator[Program]:
    for hook, parent in _CLSACT.items():
        for one in bpf_filters(index, parent):
            text = program_name(one.program) if one.program else ""
            yield Program(
                f"tc {hook}",
                one.program,
                text or one.name,
                f"tc filter del dev {name} {hook} pref {one.priority}",
            )


def program_name(number: int) -> str:
    """Returns a program's name; empty if this process may not know it."""
    with contextlib.suppress(OSError), _descriptor(_PROG_GET_FD_BY_ID, number) as fd:
        return _info(fd, 128)[64:80].partition(b"\0")[0].decode(errors="replace")
    return ""


def _xdp_link(index: int, program: int) -> int | None:
    """Returns the link that holds the program, if one does."""
    number: int = 0
    with contextlib.suppress(OSError):
        for _ in range(_LINKS_MOST):
            attributes = bytearray(struct.pack("III", number, 0, 0))
            _bpf(_LINK_GET_NEXT_ID, attributes)
            (number,) = struct.unpack_from("I", attributes, 4)
            with contextlib.suppress(OSError), _descriptor(_LINK_GET_FD_BY_ID, number) as fd:
                # struct bpf_link_info: type, id, prog_id, (aligned) xdp.ifindex
                kind, _, of, _, at = struct.unpack_from("5I", _info(fd, 64))
                if (kind, of, at) == (_LINK_XDP, program, index):
                    return number
    return None


def _query(index: int, attach_type: int) -> list[tuple[int, int]]:
    """Returns ids of programs and of the links that hold them, 0 for none."""
    programs, links = ((ctypes.c_uint32 * _PROGRAMS_MOST)() for _ in range(2))
    # struct { target_ifindex, attach_type, query_flags, attach_flags; prog_ids; count, :32;
    #          prog_attach_flags; link_ids; link_attach_flags; revision }
    attributes = bytearray(
        struct.pack(
            "4IQ2I4Q",
            *(index, attach_type, 0, 0, ctypes.addressof(programs), _PROGRAMS_MOST, 0),
            *(0, ctypes.addressof(links), 0, 0),
        )
    )
    _bpf(_PROG_QUERY, attributes)
    count = min(struct.unpack_from("I", attributes, 24)[0], _PROGRAMS_MOST)
    return list(zip(programs[:count], links[:count], strict=True))


@contextlib.contextmanager
def _descriptor(command: int, number: int) -> Iterator[int]:
    fd = _bpf(command, bytearray(struct.pack("III", number, 0, 0)))
    try:
        yield fd
    finally:
        os.close(fd)


def _info(fd: int, length: int) -> bytes:
    buffer = ctypes.create_string_buffer(length)
    _bpf(_OBJ_GET_INFO_BY_FD, bytearray(struct.pack("IIQ", fd, length, ctypes.addressof(buffer))))
    return buffer.raw


def _bpf(command: int, attributes: bytearray) -> int:
    number = _SYS_BPF.get(os.uname().machine)
    if number is None:
        raise OSError("bpf(2) is not known by its number on this machine")
    libc = ctypes.CDLL(None, use_errno=True)
    where = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    ret = libc.syscall(
        ctypes.c_long(number), ctypes.c_int(command), where, ctypes.c_uint(len(attributes))
    )
    if ret < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(ret)
