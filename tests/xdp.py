# SPDX-License-Identifier: BSD-2-Clause
"""Small XDP and tc programs of two instructions, and queries of what is attached."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from functools import cache
from typing import Literal

from livedma.lab.hosts import Host

DROP, PASS = 1, 2

_PROG_TYPE_TC, _PROG_TYPE_XDP = 3, 6
_ATTACH_XDP = 37
_ATTACH_TCX = (46, 47)  # ingress, egress
_HAS_FRAGS = 1 << 5
_DRIVER_MODE = 1 << 2
_UPDATE_IF_NOEXIST = 1 << 0
_CLSACT_PARENTS = (0xFFFFFFF2, 0xFFFFFFF3)  # ingress, egress
_GO_ON = -1  # TCX_NEXT, TC_ACT_UNSPEC


class _LoadOptions(ctypes.Structure):
    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("attempts", ctypes.c_int),
        ("expected_attach_type", ctypes.c_int),
        ("prog_btf_fd", ctypes.c_uint32),
        ("prog_flags", ctypes.c_uint32),
    )


class _RunOptions(ctypes.Structure):
    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_char_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


class _LinkOptions(ctypes.Structure):
    _fields_ = (("sz", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("pad", ctypes.c_uint32))


@cache
def _libbpf() -> ctypes.CDLL:
    return ctypes.CDLL("libbpf.so.1")


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")
    return result


def _load(kind: int, name: str, verdict: int, options: _LoadOptions) -> int:
    code = struct.pack("<BBhiBBhi", 0xB7, 0, 0, verdict, 0x95, 0, 0, 0)
    ret = _libbpf().bpf_prog_load(kind, name.encode(), b"GPL", code, 2, ctypes.byref(options))
    return _check(ret, "loading a program")


class TinyXdp:
    """A program that returns one verdict, attached natively to a host's interface while entered."""

    def __init__(self, host: Host, verdict: int = PASS, *, name: str = "tiny", link: bool = False):
        self.host, self.name, self._by_link = host, name, link
        self._index = host.ifindex
        options = _LoadOptions(ctypes.sizeof(_LoadOptions), 0, _ATTACH_XDP, 0, _HAS_FRAGS)
        self._fd = _load(_PROG_TYPE_XDP, name, verdict, options)
        self._link = -1

    def __enter__(self) -> TinyXdp:
        with self.host.inside():
            if self._by_link:
                options = _LinkOptions(ctypes.sizeof(_LinkOptions), _DRIVER_MODE, 0)
                self._link = _check(
                    _libbpf().bpf_link_create(
                        self._fd, self._index, _ATTACH_XDP, ctypes.byref(options)
                    ),
                    "attaching an XDP program",
                )
            else:
                flags = _DRIVER_MODE | _UPDATE_IF_NOEXIST
                result = _libbpf().bpf_xdp_attach(self._index, self._fd, flags, None)
                _check(result, "attaching an XDP program")
        return self

    def __exit__(self, *_: object) -> None:
        if self._link >= 0:
            os.close(self._link)
        else:
            with self.host.inside():
                _libbpf().bpf_xdp_attach(self._index, -1, _DRIVER_MODE, None)
        os.close(self._fd)


class TinyTc:
    """A program that passes every packet, attached to a host's interface while entered."""

    def __init__(
        self, host: Host, *, name: str, how: Literal["tcx", "clsact"], egress: bool = False
    ) -> None:
        self.host, self.name, self._how, self._egress = host, name, how, egress
        self._index = host.ifindex
        options = _LoadOptions(ctypes.sizeof(_LoadOptions), 0, 0, 0, 0)
        self._fd = _load(_PROG_TYPE_TC, name, _GO_ON, options)
        self._link = -1

    def __enter__(self) -> TinyTc:
        if self._how == "clsact":
            parent = _CLSACT_PARENTS[self._egress]
            with self.host.netlink() as ip:
                ip.tc("add", "clsact", self._index)
                ip.tc(
                    "add-filter",
                    "bpf",
                    self._index,
                    parent=parent,
                    prio=7,
                    fd=self._fd,
                    name=self.name,
                    direct_action=True,
                )
            return self
        with self.host.inside():
            attach_type = _ATTACH_TCX[self._egress]
            ret = _libbpf().bpf_link_create(self._fd, self._index, attach_type, None)
            self._link = _check(ret, "attaching a tc program")
        return self

    def __exit__(self, *_: object) -> None:
        if self._how == "clsact":
            with self.host.netlink() as ip:
                ip.tc("del", "clsact", self._index)
        else:
            os.close(self._link)
        os.close(self._fd)


def attached_id(host: Host) -> int:
    """Returns the id of the XDP program on the host's interface; 0 if there is none."""
    found = ctypes.c_uint32(0)
    with host.inside():
        index = socket.if_nametoindex(host.iface)
        _check(_libbpf().bpf_xdp_query_id(index, 0, ctypes.byref(found)), "asking for XDP")
    return found.value


def attached_tcx(host: Host) -> int:
    """Returns how many programs tcx runs on the host's interface, ingress and egress together."""
    total = 0
    with host.inside():
        index = socket.if_nametoindex(host.iface)
        for attach_type in _ATTACH_TCX:
            flags, count = ctypes.c_uint32(0), ctypes.c_uint32(0)
            result = _libbpf().bpf_prog_query(
                index, attach_type, 0, ctypes.byref(flags), None, ctypes.byref(count)
            )
            _check(result, "asking for tcx")
            total += count.value
    return total


def run_xdp(program_id: int, frame: bytes, linear_bytes: int | None = None) -> int:
    """Runs an XDP program on a frame, once; returns its verdict.

    linear_bytes: how much of the frame is not in fragments; OSError where the kernel (before 6.18)
    cannot be asked for that.
    """
    fd = _check(_libbpf().bpf_prog_get_fd_by_id(program_id), "finding an XDP program")
    try:
        options = _RunOptions(ctypes.sizeof(_RunOptions), frame, None, len(frame))
        if linear_bytes is not None:
            # struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress
            options.ctx_in = struct.pack("6I", 0, linear_bytes, 0, 0, 0, 0)
            options.ctx_size_in = 24
        result = _libbpf().bpf_prog_test_run_opts(fd, ctypes.byref(options))
        _check(result, "running an XDP program")
        return int(options.retval)
    finally:
        os.close(fd)
