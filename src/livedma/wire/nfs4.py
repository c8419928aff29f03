# SPDX-License-Identifier: BSD-2-Clause
"""Tables of NFSv4.0, 4.1 and 4.2 have the XDR shape of every operation's arguments and results.

Sources: RFC 7531, RFC 5662, RFC 7863, RFC 8276 (extended attributes), RFC 9754 (delegated
attributes). A shape is text, compiled once by `livedma.wire.shapes`:

    u h        4 and 8 bytes               s      opaque or string of variable length
    16b        16 bytes                    d      as s, but a chunk may carry it (RFC 8267)
    [x y]      counted array of x y        (x y)* linked list of x y (bool in front of each)
    {1: x | 2,3: y | *: z}                 union on a 4-byte word; without * others are malformed
    name       another shape

An operation's results are a union on its status. Where only success has a body, the table has the
body alone; results that begin with { are the whole union.
"""

from __future__ import annotations

from livedma.wire.nfs_numbers import CallbackOp, Op

TYPES = {
    "bitmap": "[u]",
    "fattr": "bitmap s",
    "stateid": "16b",
    "session": "16b",
    "device": "16b",
    "owner": "h s",
    "change": "u h h",
    "time": "h u",
    "netaddr": "s s",
    "ace": "u u u s",
    "denied": "h h u owner",
    "secinfo": "[{6: s u u | *:}]",
    "limit": "{1: h | 2: u u}",
    "delegation": "{0: | 1,4: stateid u ace | 2,5: stateid u limit ace | 3: {1,2: u | *:}}",
    "createhow": "{0,1: fattr | 2: h | 3: h fattr}",
    "claim": "{0,3: s | 1: u | 2: stateid s | 5: stateid | 4,6:}",
    "channel": "u u u u u u [u]",
    "callback_security": "[{0: | 1: u s u u [u] | 6: u s s}]",
    "protected_ops": "bitmap bitmap",
    "implementation": "[s s time]",
    "layout_content": "u s",
    "netloc": "{1,2: s | 3: netaddr}",
    "written": "[stateid] h u h",
    "notifications": "[bitmap s]",
}

# operation: (arguments, results)
OPERATIONS: dict[Op, tuple[str, str]] = {
    Op.ACCESS: ("u", "u u"),
    Op.CLOSE: ("u stateid", "stateid"),
    Op.COMMIT: ("h u", "h"),
    Op.CREATE: ("{5: s | 3,4: u u | *:} s fattr", "change bitmap"),
    Op.DELEGPURGE: ("h", ""),
    Op.DELEGRETURN: ("stateid", ""),
    Op.GETATTR: ("bitmap", "fattr"),
    Op.GETFH: ("", "s"),
    Op.LINK: ("s", "change"),
    Op.LOCK: (
        "u u h h {1: u stateid u owner | 0: stateid u}",
        "{0: stateid | 10010: denied | *:}",
    ),
    Op.LOCKT: ("u h h owner", "{10010: denied | *:}"),
    Op.LOCKU: ("u u stateid h h", "stateid"),
    Op.LOOKUP: ("s", ""),
    Op.LOOKUPP: ("", ""),
    Op.NVERIFY: ("fattr", ""),
    Op.OPEN: ("u u u owner {1: createhow | 0:} claim", "stateid change u bitmap delegation"),
    Op.OPENATTR: ("u", ""),
    Op.OPEN_CONFIRM: ("stateid u", "stateid"),
    Op.OPEN_DOWNGRADE: ("stateid u u u", "stateid"),
    Op.PUTFH: ("s", ""),
    Op.PUTPUBFH: ("", ""),
    Op.PUTROOTFH: ("", ""),
    Op.READ: ("stateid h u", "u d"),
    Op.READDIR: ("h h u u bitmap", "h (h s fattr)* u"),
    Op.READLINK: ("", "d"),
    Op.REMOVE: ("s", "change"),
    Op.RENAME: ("s s", "change change"),
    Op.RENEW: ("h", ""),
    Op.RESTOREFH: ("", ""),
    Op.SAVEFH: ("", ""),
    Op.SECINFO: ("s", "secinfo"),
    Op.SETATTR: ("stateid fattr", "{*: bitmap}"),
    Op.SETCLIENTID: ("h s u netaddr u", "{0: h h | 10017: netaddr | *:}"),
    Op.SETCLIENTID_CONFIRM: ("h h", ""),
    Op.VERIFY: ("fattr", ""),
    Op.WRITE: ("stateid h u d", "u u h"),
    Op.RELEASE_LOCKOWNER: ("owner", ""),
    Op.BACKCHANNEL_CTL: ("u callback_security", ""),
    Op.BIND_CONN_TO_SESSION: ("session u u", "session u u"),
    Op.EXCHANGE_ID: (
        "h s u {0: | 1: protected_ops | 2: protected_ops [s] [s] u u} implementation",
        "h u u {0: | 1: protected_ops | 2: protected_ops u u u u [s]} h s s implementation",
    ),
    Op.CREATE_SESSION: (
        "h u u channel channel u callback_security",
        "session u u channel channel",
    ),
    Op.DESTROY_SESSION: ("session", ""),
    Op.FREE_STATEID: ("stateid", ""),
    Op.GET_DIR_DELEGATION: (
        "u bitmap time time bitmap bitmap",
        "{0: {0: h stateid bitmap bitmap bitmap | 1: u} | *:}",
    ),
    Op.GETDEVICEINFO: ("device u u bitmap", "{0: layout_content bitmap | 10005: u | *:}"),
    Op.GETDEVICELIST: ("u u h h", "h h [device] u"),
    Op.LAYOUTCOMMIT: (
        "h h u stateid {1: h | 0:} {1: time | 0:} layout_content",
        "{0: {1: h | 0:} | *:}",
    ),
    Op.LAYOUTGET: (
        "u u u h h h stateid u",
        "{0: u stateid [h h u layout_content] | 10058: u | *:}",
    ),
    Op.LAYOUTRETURN: ("u u u {1: h h stateid s | 2,3:}", "{0: {1: stateid | 0:} | *:}"),
    Op.SECINFO_NO_NAME: ("u", "secinfo"),
    Op.SEQUENCE: ("session u u u u", "session u u u u u"),
    Op.SET_SSV: ("s s", "s"),
    Op.TEST_STATEID: ("[stateid]", "[u]"),
    Op.WANT_DELEGATION: ("u {1: u | 4,6:}", "delegation"),
    Op.DESTROY_CLIENTID: ("h", ""),
    Op.RECLAIM_COMPLETE: ("u", ""),
    Op.ALLOCATE: ("stateid h h", ""),
    Op.COPY: ("stateid stateid h h h u u [netloc]", "{0: written u u | 10094: u u | *:}"),
    Op.COPY_NOTIFY: ("stateid netloc", "time stateid [netloc]"),
    Op.DEALLOCATE: ("stateid h h", ""),
    Op.IO_ADVISE: ("stateid h h bitmap", "bitmap"),
    Op.LAYOUTERROR: ("h h stateid [device u u]", ""),
    Op.LAYOUTSTATS: ("h h stateid h h h h device layout_content", ""),
    Op.OFFLOAD_CANCEL: ("stateid", ""),
    Op.OFFLOAD_STATUS: ("stateid", "h [u]"),
    Op.READ_PLUS: ("stateid h u", "u [{0: h s | 1: h h}]"),
    Op.SEEK: ("stateid h u", "u h"),
    Op.WRITE_SAME: ("stateid u h h h h u h s", "written"),
    Op.CLONE: ("stateid stateid h h h", ""),
    Op.GETXATTR: ("s", "s"),
    Op.SETXATTR: ("u s s", "change"),
    Op.LISTXATTRS: ("h u", "h [s] u"),
    Op.REMOVEXATTR: ("s", "change"),
    Op.ILLEGAL: ("", ""),
}

CALLBACKS: dict[CallbackOp, tuple[str, str]] = {
    CallbackOp.GETATTR: ("s bitmap", "fattr"),
    CallbackOp.RECALL: ("stateid u s", ""),
    CallbackOp.LAYOUTRECALL: ("u u u {1: s h h stateid | 2: h h | 3:}", ""),
    CallbackOp.NOTIFY: ("stateid s notifications", ""),
    CallbackOp.PUSH_DELEG: ("s delegation", ""),
    CallbackOp.RECALL_ANY: ("u bitmap", ""),
    CallbackOp.RECALLABLE_OBJ_AVAIL: ("u bitmap", ""),
    CallbackOp.RECALL_SLOT: ("u", ""),
    CallbackOp.SEQUENCE: ("session u u u u [session [u u]]", "session u u u u"),
    CallbackOp.WANTS_CANCELLED: ("u u", ""),
    CallbackOp.NOTIFY_LOCK: ("s owner", ""),
    CallbackOp.NOTIFY_DEVICEID: ("notifications", ""),
    CallbackOp.OFFLOAD: ("s stateid {0: written | *: h}", ""),
    CallbackOp.ILLEGAL: ("", ""),
}
