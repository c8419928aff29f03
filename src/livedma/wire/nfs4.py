"""NFSv4.0, 4.1 and 4.2 as tables: the XDR shape of every operation's arguments and results.

Sources: RFC 7531, RFC 5662, RFC 7863, RFC 8276 (extended attributes), RFC 9754 (delegated
attributes). A shape is text, compiled once by `livedma.wire.shapes`:

    u h        4 and 8 bytes               s      opaque or string of variable length
    16b        16 bytes                    d      as s, but a chunk may carry it (RFC 8267)
    [x y]      counted array of x y        (x y)* linked list of x y (bool in front of each)
    {1: x | 2,3: y | *: z}                 union on a 4-byte word; without * others are malformed
    name       another shape

An operation's results are a union on its status; where only success has a body, the body alone
is written (so results that begin with { are the whole union).
"""

from __future__ import annotations

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

# number: (name, arguments, results)
OPERATIONS: dict[int, tuple[str, str, str]] = {
    3: ("ACCESS", "u", "u u"),
    4: ("CLOSE", "u stateid", "stateid"),
    5: ("COMMIT", "h u", "h"),
    6: ("CREATE", "{5: s | 3,4: u u | *:} s fattr", "change bitmap"),
    7: ("DELEGPURGE", "h", ""),
    8: ("DELEGRETURN", "stateid", ""),
    9: ("GETATTR", "bitmap", "fattr"),
    10: ("GETFH", "", "s"),
    11: ("LINK", "s", "change"),
    12: (
        "LOCK",
        "u u h h {1: u stateid u owner | 0: stateid u}",
        "{0: stateid | 10010: denied | *:}",
    ),
    13: ("LOCKT", "u h h owner", "{10010: denied | *:}"),
    14: ("LOCKU", "u u stateid h h", "stateid"),
    15: ("LOOKUP", "s", ""),
    16: ("LOOKUPP", "", ""),
    17: ("NVERIFY", "fattr", ""),
    18: ("OPEN", "u u u owner {1: createhow | 0:} claim", "stateid change u bitmap delegation"),
    19: ("OPENATTR", "u", ""),
    20: ("OPEN_CONFIRM", "stateid u", "stateid"),
    21: ("OPEN_DOWNGRADE", "stateid u u u", "stateid"),
    22: ("PUTFH", "s", ""),
    23: ("PUTPUBFH", "", ""),
    24: ("PUTROOTFH", "", ""),
    25: ("READ", "stateid h u", "u d"),
    26: ("READDIR", "h h u u bitmap", "h (h s fattr)* u"),
    27: ("READLINK", "", "d"),
    28: ("REMOVE", "s", "change"),
    29: ("RENAME", "s s", "change change"),
    30: ("RENEW", "h", ""),
    31: ("RESTOREFH", "", ""),
    32: ("SAVEFH", "", ""),
    33: ("SECINFO", "s", "secinfo"),
    34: ("SETATTR", "stateid fattr", "{*: bitmap}"),
    35: ("SETCLIENTID", "h s u netaddr u", "{0: h h | 10017: netaddr | *:}"),
    36: ("SETCLIENTID_CONFIRM", "h h", ""),
    37: ("VERIFY", "fattr", ""),
    38: ("WRITE", "stateid h u d", "u u h"),
    39: ("RELEASE_LOCKOWNER", "owner", ""),
    40: ("BACKCHANNEL_CTL", "u callback_security", ""),
    41: ("BIND_CONN_TO_SESSION", "session u u", "session u u"),
    42: (
        "EXCHANGE_ID",
        "h s u {0: | 1: protected_ops | 2: protected_ops [s] [s] u u} implementation",
        "h u u {0: | 1: protected_ops | 2: protected_ops u u u u [s]} h s s implementation",
    ),
    43: (
        "CREATE_SESSION",
        "h u u channel channel u callback_security",
        "session u u channel channel",
    ),
    44: ("DESTROY_SESSION", "session", ""),
    45: ("FREE_STATEID", "stateid", ""),
    46: (
        "GET_DIR_DELEGATION",
        "u bitmap time time bitmap bitmap",
        "{0: {0: h stateid bitmap bitmap bitmap | 1: u} | *:}",
    ),
    47: ("GETDEVICEINFO", "device u u bitmap", "{0: layout_content bitmap | 10005: u | *:}"),
    48: ("GETDEVICELIST", "u u h h", "h h [device] u"),
    49: (
        "LAYOUTCOMMIT",
        "h h u stateid {1: h | 0:} {1: time | 0:} layout_content",
        "{0: {1: h | 0:} | *:}",
    ),
    50: (
        "LAYOUTGET",
        "u u u h h h stateid u",
        "{0: u stateid [h h u layout_content] | 10058: u | *:}",
    ),
    51: ("LAYOUTRETURN", "u u u {1: h h stateid s | 2,3:}", "{0: {1: stateid | 0:} | *:}"),
    52: ("SECINFO_NO_NAME", "u", "secinfo"),
    53: ("SEQUENCE", "session u u u u", "session u u u u u"),
    54: ("SET_SSV", "s s", "s"),
    55: ("TEST_STATEID", "[stateid]", "[u]"),
    56: ("WANT_DELEGATION", "u {1: u | 4,6:}", "delegation"),
    57: ("DESTROY_CLIENTID", "h", ""),
    58: ("RECLAIM_COMPLETE", "u", ""),
    59: ("ALLOCATE", "stateid h h", ""),
    60: ("COPY", "stateid stateid h h h u u [netloc]", "{0: written u u | 10094: u u | *:}"),
    61: ("COPY_NOTIFY", "stateid netloc", "time stateid [netloc]"),
    62: ("DEALLOCATE", "stateid h h", ""),
    63: ("IO_ADVISE", "stateid h h bitmap", "bitmap"),
    64: ("LAYOUTERROR", "h h stateid [device u u]", ""),
    65: ("LAYOUTSTATS", "h h stateid h h h h device layout_content", ""),
    66: ("OFFLOAD_CANCEL", "stateid", ""),
    67: ("OFFLOAD_STATUS", "stateid", "h [u]"),
    68: ("READ_PLUS", "stateid h u", "u [{0: h s | 1: h h}]"),
    69: ("SEEK", "stateid h u", "u h"),
    70: ("WRITE_SAME", "stateid u h h h h u h s", "written"),
    71: ("CLONE", "stateid stateid h h h", ""),
    72: ("GETXATTR", "s", "s"),
    73: ("SETXATTR", "u s s", "change"),
    74: ("LISTXATTRS", "h u", "h [s] u"),
    75: ("REMOVEXATTR", "s", "change"),
    10044: ("ILLEGAL", "", ""),
}

CALLBACKS: dict[int, tuple[str, str, str]] = {
    3: ("CB_GETATTR", "s bitmap", "fattr"),
    4: ("CB_RECALL", "stateid u s", ""),
    5: ("CB_LAYOUTRECALL", "u u u {1: s h h stateid | 2: h h | 3:}", ""),
    6: ("CB_NOTIFY", "stateid s notifications", ""),
    7: ("CB_PUSH_DELEG", "s delegation", ""),
    8: ("CB_RECALL_ANY", "u bitmap", ""),
    9: ("CB_RECALLABLE_OBJ_AVAIL", "u bitmap", ""),
    10: ("CB_RECALL_SLOT", "u", ""),
    11: ("CB_SEQUENCE", "session u u u u [session [u u]]", "session u u u u"),
    12: ("CB_WANTS_CANCELLED", "u u", ""),
    13: ("CB_NOTIFY_LOCK", "s owner", ""),
    14: ("CB_NOTIFY_DEVICEID", "notifications", ""),
    15: ("CB_OFFLOAD", "s stateid {0: written | *: h}", ""),
    10044: ("CB_ILLEGAL", "", ""),
}
