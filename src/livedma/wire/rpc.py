# SPDX-License-Identifier: BSD-2-Clause
"""Reads ONC RPC version 2 (RFC 5531): the header of a call or a reply.

A call gives `xid`, `type` "call", `rpcvers`, `program`, `program_name`, `version`, `procedure`,
`procedure_name` and `cred` {`flavor`; for AUTH_SYS `machine`, `uid`, `gid`; for RPCSEC_GSS
`gss_proc`, `service`}. A reply gives `xid`, `type` "reply", `reply_stat` ("accepted" or
"denied") and `accept_stat` or `reject_stat`. A reply does not say what it answers: a caller that
has kept the call adds the program with `name_call`.
"""

from __future__ import annotations

from typing import Any

from livedma.wire.xdr import Malformed, Reader, Short

VERSION = 2
CALL, REPLY = 0, 1
AUTH_MOST = 400  # section 8.2
MACHINE_MOST = 255  # appendix A
GIDS_MOST = 16
NFS, MOUNT, NLM, NSM, NFSACL, PORTMAP = 100003, 100005, 100021, 100024, 100227, 100000
NFS_CALLBACK = 0x40000000
# Program numbers for transient use by anyone (RFC 5531 section 13), as by NFSv4.0 callbacks.
TRANSIENT = range(0x40000000, 0x60000000)

PROGRAMS = {
    PORTMAP: "PORTMAP",
    NFS: "NFS",
    MOUNT: "MOUNT",
    NLM: "NLM",
    NSM: "NSM",
    NFSACL: "NFSACL",
    100011: "RQUOTA",
    NFS_CALLBACK: "NFS_CB",
}

_NFS2 = (
    "NULL GETATTR SETATTR ROOT LOOKUP READLINK READ WRITECACHE WRITE CREATE REMOVE RENAME LINK "
    "SYMLINK MKDIR RMDIR READDIR STATFS"
)
_NFS3 = (
    "NULL GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD REMOVE "
    "RMDIR RENAME LINK READDIR READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT"
)
_NLM = (
    "NULL TEST LOCK CANCEL UNLOCK GRANTED TEST_MSG LOCK_MSG CANCEL_MSG UNLOCK_MSG GRANTED_MSG "
    "TEST_RES LOCK_RES CANCEL_RES UNLOCK_RES GRANTED_RES - - - - SHARE UNSHARE NM_LOCK FREE_ALL"
)
_PROCEDURES: dict[tuple[int, int], list[str]] = {
    (NFS, 2): _NFS2.split(),
    (NFS, 3): _NFS3.split(),
    (NFS, 4): ["NULL", "COMPOUND"],
    (NFS_CALLBACK, 1): ["CB_NULL", "CB_COMPOUND"],
    (MOUNT, 1): ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"],
    (MOUNT, 3): ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"],
    (NLM, 4): _NLM.split(),
    (NSM, 1): ["NULL", "STAT", "MON", "UNMON", "UNMON_ALL", "SIMU_CRASH", "NOTIFY"],
    (NFSACL, 3): ["NULL", "GETACL", "SETACL"],
    (PORTMAP, 2): ["NULL", "SET", "UNSET", "GETPORT", "DUMP", "CALLIT"],
}
ACCEPT_STATS = (
    "SUCCESS",
    "PROG_UNAVAIL",
    "PROG_MISMATCH",
    "PROC_UNAVAIL",
    "GARBAGE_ARGS",
    "SYSTEM_ERR",
)
_AUTH_STATS = (
    "AUTH_OK AUTH_BADCRED AUTH_REJECTEDCRED AUTH_BADVERF AUTH_REJECTEDVERF AUTH_TOOWEAK "
    "AUTH_INVALIDRESP AUTH_FAILED AUTH_KERB_GENERIC AUTH_TIMEEXPIRE AUTH_TKT_FILE AUTH_DECODE "
    "AUTH_NET_ADDR RPCSEC_GSS_CREDPROBLEM RPCSEC_GSS_CTXPROBLEM"
)
AUTH_STATS = _AUTH_STATS.split()
FLAVORS = {
    0: "AUTH_NONE",
    1: "AUTH_SYS",
    2: "AUTH_SHORT",
    3: "AUTH_DH",
    6: "RPCSEC_GSS",
    7: "AUTH_TLS",
}
GSS_PROCS = ("DATA", "INIT", "CONTINUE_INIT", "DESTROY")
GSS_SERVICES = {1: "none", 2: "integrity", 3: "privacy"}


def procedure_name(program: int, version: int, procedure: int) -> str:
    """Returns the procedure's name, or its number in decimal if it has none here."""
    if program == NFS_CALLBACK:
        version = 1  # Linux also answers to version 4, with the same procedures.
    names = _PROCEDURES.get((program, version), ["NULL"])
    named = procedure < len(names) and names[procedure] != "-"
    return names[procedure] if named else str(procedure)


def name_call(
    ret: dict[str, Any], program: int, version: int, procedure: int, is_callback: bool = False
) -> None:
    """Adds the five keys that say which procedure a message is about.

    `is_callback` says that an NFSv4 client chose this program number for its callbacks.
    """
    known = NFS_CALLBACK if is_callback else program
    ret["program"] = program
    ret["program_name"] = PROGRAMS.get(known, str(program))
    ret["version"] = version
    ret["procedure"] = procedure
    ret["procedure_name"] = procedure_name(known, version, procedure)


def decode(reader: Reader, ret: dict[str, Any]) -> None:
    """Reads one header into `ret`, and leaves `reader` at the arguments or results.

    Raises `Malformed`; then `ret` holds what came before.
    """
    ret["xid"] = reader.u32()
    kind = reader.u32()
    if kind == CALL:
        ret["type"] = "call"
        _call(reader, ret)
    elif kind == REPLY:
        ret["type"] = "reply"
        _reply(reader, ret)
    else:
        raise Malformed(f"RPC message type {kind}", reader.pos - 4)


def _call(reader: Reader, ret: dict[str, Any]) -> None:
    ret["rpcvers"] = version = reader.u32()
    if version != VERSION:
        raise Malformed(f"RPC version {version}", reader.pos - 4)
    name_call(ret, reader.u32(), reader.u32(), reader.u32())
    flavor = reader.u32()
    cred: dict[str, Any] = {"flavor": FLAVORS.get(flavor, str(flavor))}
    ret["cred"] = cred
    start = reader.pos + 4
    body = reader.opaque(AUTH_MOST)
    try:
        _cred(flavor, Reader(body), cred)
    except Malformed as wrong:
        raise Malformed(f"{wrong.what} of the credential", start + wrong.at) from None
    reader.u32()
    reader.opaque(AUTH_MOST)


def _cred(flavor: int, body: Reader, cred: dict[str, Any]) -> None:
    try:
        if flavor == 1:
            body.u32()
            cred["machine"] = body.text(MACHINE_MOST)
            cred["uid"] = body.u32()
            cred["gid"] = body.u32()
        elif flavor == 6:
            body.u32()
            proc = body.u32()
            cred["gss_proc"] = GSS_PROCS[proc] if proc < len(GSS_PROCS) else str(proc)
            body.u32()
            service = body.u32()
            cred["service"] = GSS_SERVICES.get(service, str(service))
    except Short as wrong:  # The body is as long as its length says, so its content contradicts.
        raise Malformed(wrong.what, wrong.at) from None


def _reply(reader: Reader, ret: dict[str, Any]) -> None:
    status = reader.u32()
    if status > 1:
        raise Malformed(f"RPC reply status {status}", reader.pos - 4)
    ret["reply_stat"] = "denied" if status else "accepted"
    if status:
        reject = reader.u32()
        if reject > 1:
            raise Malformed(f"RPC reject status {reject}", reader.pos - 4)
        ret["reject_stat"] = "AUTH_ERROR" if reject else "RPC_MISMATCH"
        if reject:
            auth = reader.u32()
            ret["auth_stat"] = AUTH_STATS[auth] if auth < len(AUTH_STATS) else str(auth)
        else:
            _range(reader, ret)
        return
    reader.u32()
    reader.opaque(AUTH_MOST)
    accept = reader.u32()
    if accept >= len(ACCEPT_STATS):
        raise Malformed(f"RPC accept status {accept}", reader.pos - 4)
    ret["accept_stat"] = ACCEPT_STATS[accept]
    if accept == 2:
        _range(reader, ret)


def _range(reader: Reader, ret: dict[str, Any]) -> None:
    ret["low"] = reader.u32()
    ret["high"] = reader.u32()
