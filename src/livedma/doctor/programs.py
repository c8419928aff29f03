"""BPF programs on an interface: asked for by bpf(2), as Debian 12's libbpf does not know tcx."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute, NetlinkError

__all__ = ["Program", "of_link", "program_name"]

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280}
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _PROG_QUERY = 13, 15, 16
_LINK_GET_FD_BY_ID, _LINK_GET_NEXT_ID = 30, 31
_LINK_XDP = 6
_LINKS_MOST = 4096
_TCX = {"ingress": 46, "egress": 47}
_CLSACT = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}
_PROGRAMS_MOST = 64
_TCA_BPF_ID = 11
_OWN = ("monitor", "capture_xdp", "capture_tc_ingr", "capture_tc_egre", "guard_xdp")


@dataclass(frozen=True)
class Program:
    hook: str  #: "native XDP", "generic XDP", "tcx ingress", "tc egress", …
    id: int | None  #: None: the kernel does not say
    name: str  #: empty: who looks may not know
    remove: str  #: the command that takes it off, without sudo

    @property
    def is_ours(self) -> bool:
        return self.name in _OWN

    def __str__(self) -> str:
        name = self.name or "its name takes root"
        return f"{self.hook} {'?' if self.id is None else self.id} ({name})"


def of_link(entry: Any, route: IPRoute) -> tuple[list[Program], bool]:
    """Those on an interface as netlink describes it, and whether that may be all of them."""
    index, name = entry["index"], entry.get_attr("IFLA_IFNAME")
    found = [*_xdp(entry, index, name), *_clsact(route, index, name)]
    try:
        return [*found, *_tcx(index, name)], True
    except PermissionError:
        return found, False
    except OSError:  # a kernel without tcx
        return found, True


def _xdp(entry: Any, index: int, name: str) -> Iterator[Program]:
    xdp = entry.get_attr("IFLA_XDP")
    if not xdp:
        return
    modes = {"native": "DRV", "generic": "SKB", "offloaded": "HW"}
    # The kernel names the program of each mode; before 4.20 only the one there is.
    ids = {mode: xdp.get_attr(f"IFLA_XDP_{short}_PROG_ID") for mode, short in modes.items()}
    if not any(ids.values()) and (only := xdp.get_attr("IFLA_XDP_PROG_ID")):
        ids["native"] = only
    for mode, number in ids.items():
        if number:
            by_link = _xdp_link(index, number)
            remove = (
                f"bpftool link detach id {by_link}"
                if by_link
                else f"ip link set dev {name} {'xdp' if mode == 'native' else 'xdp' + mode} off"
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


def _clsact(route: IPRoute, index: int, name: str) -> Iterator[Program]:
    for hook, parent in _CLSACT.items():
        with contextlib.suppress(NetlinkError):  # no such queue discipline
            for entry in route.get_filters(index=index, parent=parent):
                options = entry.get_attr("TCA_OPTIONS")
                if entry.get_attr("TCA_KIND") != "bpf" or options is None or not entry["handle"]:
                    continue
                number = _filter_program(options)
                text = program_name(number) if number else ""
                yield Program(
                    f"tc {hook}",
                    number,
                    text or str(options.get_attr("TCA_BPF_NAME") or ""),
                    f"tc filter del dev {name} {hook} pref {entry['info'] >> 16}",
                )


def _filter_program(options: Any) -> int | None:
    """pyroute2 has no name for this attribute, and leaves it as it came."""
    for name, value in options["attrs"]:
        if name == "UNKNOWN" and value["header"]["type"] == _TCA_BPF_ID:
            return int.from_bytes(value.data[value.offset + 4 :][:4], sys.byteorder)
    return None


def program_name(number: int) -> str:
    """Empty if this process may not know."""
    with contextlib.suppress(OSError), _descriptor(_PROG_GET_FD_BY_ID, number) as fd:
        return _info(fd, 128)[64:80].partition(b"\0")[0].decode(errors="replace")
    return ""


def _xdp_link(index: int, program: int) -> int | None:
    """The link that holds it, if one does."""
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
    """Ids of programs and of the links that hold them, 0 for none."""
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
