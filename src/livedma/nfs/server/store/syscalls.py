# SPDX-License-Identifier: BSD-2-Clause
"""Makes system calls that Python lacks, or makes for the whole process instead of one thread.

Each raises `OSError` on failure. O_PATH descriptors work wherever the kernel takes them: an empty
name is the descriptor's own file.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from typing import Any

__all__ = [
    "Capabilities",
    "HandleTooLong",
    "Link",
    "birth_ns",
    "capabilities",
    "chmod",
    "chown",
    "clone_mount",
    "entries",
    "fallocate",
    "handle_of",
    "is_accessible",
    "open_at",
    "open_by_handle",
    "own_filesystem_context",
    "set_fsgid",
    "set_fsuid",
    "set_groups",
    "set_times",
]

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EACCESS = 0x200
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE = 0x1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
_CLONE_FS = 0x200
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_STATX_ATTR_MOUNT_ROOT = 0x2000
_STX_ATTRIBUTES_AT = 8
_STX_BTIME_AT = 80
_UTIME_NOW = (1 << 30) - 1
_UTIME_OMIT = (1 << 30) - 2
_HANDLE_MOST = 128  # MAX_HANDLE_SZ
_CAPABILITY_VERSION_3 = 0x20080522

# Calls without a wrapper in the C library have the same number everywhere, except setgroups.
_SYS_OPEN_TREE = 428
_SYS_OPENAT2 = 437
_SYS_FACCESSAT2 = 439
_SYS_SETGROUPS = {"x86_64": 116, "i686": 206, "ppc64le": 81, "s390x": 206}.get(
    platform.machine(), 159
)

_libc = ctypes.CDLL(None, use_errno=True)

_int, _uint, _long = ctypes.c_int, ctypes.c_uint, ctypes.c_long
_pointer, _string, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t


def _function(name: str, *arguments: Any, returns: Any = _int) -> Any:
    ret = _libc[name]  # An object of its own: several prototypes of syscall() exist side by side.
    ret.argtypes, ret.restype = arguments, returns
    return ret


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class _FileHandle(ctypes.Structure):
    _fields_ = (
        ("handle_bytes", _uint),
        ("handle_type", _int),
        ("f_handle", ctypes.c_ubyte * _HANDLE_MOST),
    )


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", _long), ("nanoseconds", _long))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", _int))


_openat2 = _function("syscall", _long, _int, _string, _pointer, _size, returns=_long)
_open_tree = _function("syscall", _long, _int, _string, _uint, returns=_long)
_faccessat2 = _function("syscall", _long, _int, _string, _int, _int, returns=_long)
_setgroups = _function("syscall", _long, _size, _pointer, returns=_long)
_name_to_handle_at = _function("name_to_handle_at", _int, _string, _pointer, _pointer, _int)
_open_by_handle_at = _function("open_by_handle_at", _int, _pointer, _int)
_statx = _function("statx", _int, _string, _int, _uint, _pointer)
_getdents64 = _function("getdents64", _int, _pointer, _size, returns=ctypes.c_ssize_t)
_fchownat = _function("fchownat", _int, _string, _uint, _uint, _int)
_utimensat = _function("utimensat", _int, _string, _pointer, _int)
_fallocate = _function("fallocate", _int, _int, ctypes.c_int64, ctypes.c_int64)
_setfsuid = _function("setfsuid", _uint)
_setfsgid = _function("setfsgid", _uint)
_unshare = _function("unshare", _int)
_capget = _function("capget", _pointer, _pointer)
_capset = _function("capset", _pointer, _pointer)

_HOW_BYTES = ctypes.sizeof(_OpenHow)
_NOBODY = 0xFFFFFFFF  # setfsuid(-1) fails, and so returns the present id.


class HandleTooLong(OSError):
    """Reports that the filesystem's handles are longer than the kernel hands out."""


class Link:
    """Opens names below a directory, with flags and rules that are prepared once."""

    __slots__ = ("_how",)

    def __init__(self, flags: int, resolve: int, mode: int = 0) -> None:
        self._how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)

    def open(self, directory: int, name: bytes) -> int:
        """Calls openat2."""
        ret: int = _openat2(_SYS_OPENAT2, directory, name, ctypes.byref(self._how), _HOW_BYTES)
        return ret if ret >= 0 else _fail()


def open_at(directory: int, name: bytes, flags: int, mode: int, resolve: int) -> int:
    """Calls openat2 once."""
    return Link(flags, resolve, mode).open(directory, name)


def clone_mount(path: bytes) -> int:
    """Opens a directory as the root of a private mount, with no other mount on it.

    Within it `..` ends at its root, also for a directory that was moved out of it meanwhile.
    """
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC
    ret: int = _open_tree(_SYS_OPEN_TREE, _AT_FDCWD, path, flags)
    return ret if ret >= 0 else _fail()


def handle_of(fd: int) -> tuple[int, bytes]:
    """Returns the type and bytes of the filesystem's own handle of a file."""
    handle, mount = _FileHandle(_HANDLE_MOST), _int()
    if _name_to_handle_at(fd, b"", ctypes.byref(handle), ctypes.byref(mount), _AT_EMPTY_PATH):
        _fail()
    length = handle.handle_bytes
    return handle.handle_type, bytes(handle.f_handle[:length])


def open_by_handle(mount: int, kind: int, opaque: bytes) -> int:
    """Opens the file of such a handle as O_PATH; `mount`: any open file of its filesystem."""
    if len(opaque) > _HANDLE_MOST:
        raise HandleTooLong(f"{len(opaque)} bytes")
    handle = _FileHandle(len(opaque), kind, (ctypes.c_ubyte * _HANDLE_MOST)(*opaque))
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    ret: int = _open_by_handle_at(mount, ctypes.byref(handle), flags)
    return ret if ret >= 0 else _fail()


def birth_ns(fd: int) -> int | None:
    """Returns when a file was made; None if the filesystem does not remember."""
    buffer = _status(fd, _STATX_BTIME)
    if not ctypes.c_uint32.from_buffer(buffer, 0).value & _STATX_BTIME:
        return None
    seconds = ctypes.c_int64.from_buffer(buffer, _STX_BTIME_AT).value
    return seconds * 10**9 + ctypes.c_uint32.from_buffer(buffer, _STX_BTIME_AT + 8).value


def is_mount_root(fd: int) -> bool:
    """Returns whether a directory, as it was opened, is the root of a mount."""
    attributes = ctypes.c_uint64.from_buffer(_status(fd, 0), _STX_ATTRIBUTES_AT).value
    return bool(attributes & _STATX_ATTR_MOUNT_ROOT)


def _status(fd: int, mask: int) -> ctypes.Array[ctypes.c_char]:
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(fd, b"", _AT_EMPTY_PATH, mask, buffer):
        _fail()
    return buffer


def entries(fd: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    """Fills `buffer` with records of an open directory; returns their bytes, 0 at the end."""
    ret: int = _getdents64(fd, buffer, len(buffer))
    return ret if ret >= 0 else _fail()


def is_accessible(fd: int, mode: int) -> bool:
    """Returns whether the kernel lets this thread, with its filesystem ids, do what `mode` says.

    The C library's access() asks for the real ids; the call itself with AT_EACCESS looks at what an
    open() would look at.
    """
    return bool(_faccessat2(_SYS_FACCESSAT2, fd, b"", mode, _AT_EMPTY_PATH | _AT_EACCESS) == 0)


def chmod(fd: int, mode: int) -> None:
    """Changes the mode of a file that need not be open for I/O."""
    os.chmod(f"/proc/self/fd/{fd}", mode)


def chown(fd: int, uid: int | None, gid: int | None) -> None:
    """Changes the owner of the file itself, even of a symbolic link; None leaves an id as it is."""
    uid = _NOBODY if uid is None else uid
    gid = _NOBODY if gid is None else gid
    if _fchownat(fd, b"", uid, gid, _AT_EMPTY_PATH | _AT_SYMLINK_NOFOLLOW):
        _fail()


def set_times(fd: int, accessed_ns: int | float | None, modified_ns: int | float | None) -> None:
    """Sets times of the file itself in ns; infinity: the server's clock, None: unchanged."""
    times = (_Timespec * 2)(_timespec(accessed_ns), _timespec(modified_ns))
    if _utimensat(fd, b"", times, _AT_EMPTY_PATH | _AT_SYMLINK_NOFOLLOW):
        _fail()


def _timespec(time_ns: int | float | None) -> _Timespec:
    if time_ns is None:
        return _Timespec(0, _UTIME_OMIT)
    if isinstance(time_ns, float):
        return _Timespec(0, _UTIME_NOW)
    return _Timespec(*divmod(time_ns, 10**9))


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Calls fallocate, which unlike posix_fallocate never falls back to writing."""
    if _fallocate(fd, mode, offset, length):
        _fail()


def set_fsuid(uid: int) -> None:
    """Sets the filesystem uid of this thread, which loses or regains capabilities over files."""
    _setfsuid(uid)
    if _setfsuid(_NOBODY) & _NOBODY != uid:
        raise PermissionError(f"cannot act as uid {uid}")


def set_fsgid(gid: int) -> None:
    """Sets the filesystem gid of this thread."""
    _setfsgid(gid)
    if _setfsgid(_NOBODY) & _NOBODY != gid:
        raise PermissionError(f"cannot act as gid {gid}")


def set_groups(gids: Sequence[int]) -> None:
    """Sets the supplementary groups of this thread; the C library sets those of all threads."""
    if _setgroups(_SYS_SETGROUPS, len(gids), (ctypes.c_uint32 * len(gids))(*gids)):
        _fail()


def own_filesystem_context() -> None:
    """Gives this thread an umask and a working directory of its own."""
    if _unshare(_CLONE_FS):
        _fail()


def capabilities() -> tuple[int, int, int]:
    """Returns this thread's capabilities: effective, permitted, inheritable."""
    header, data = _CapabilityHeader(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if _capget(ctypes.byref(header), data):
        _fail()
    return data[0] | data[3] << 32, data[1] | data[4] << 32, data[2] | data[5] << 32


class Capabilities:
    """Holds capabilities for a thread, prepared once and set often."""

    __slots__ = ("_data", "_header")

    def __init__(self, effective: int, permitted: int, inheritable: int) -> None:
        sets = effective, permitted, inheritable
        low, high = (one & 0xFFFFFFFF for one in sets), (one >> 32 for one in sets)
        self._header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
        self._data = (ctypes.c_uint32 * 6)(*low, *high)

    def set(self) -> None:
        """Sets them for this thread, and no other."""
        if _capset(ctypes.byref(self._header), self._data):
            _fail()


def _fail() -> int:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
