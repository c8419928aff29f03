# SPDX-License-Identifier: BSD-2-Clause
"""Controls the guard's program and maps. Contracts are in bpf/guard_session.h."""
from os import strerror
from typing import NamedTuple

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset


cdef extern from "wire/opcode.h" nogil:
    int LDMA_OP_COUNT
    const char *const *ldma_operation_names

cdef extern from "bpf/guard_rule.h" nogil:
    uint32_t LDMA_GUARD_RULES, LDMA_GUARD_RULE_QPS, LDMA_GUARD_QPS, LDMA_GUARD_QP_WORDS
    uint32_t LDMA_GUARD_NO_QP, LDMA_GUARD_RATE_MAX, LDMA_GUARD_BURST_MAX
    uint32_t LDMA_GUARD_SLOT_NEW, LDMA_GUARD_UNMATCHED, LDMA_GUARD_MALFORMED, LDMA_GUARD_COUNTERS
    int LDMA_GUARD_ALLOW, LDMA_GUARD_DROP, LDMA_GUARD_LIMIT
    int LDMA_GUARD_QP_ANY, LDMA_GUARD_QP_LISTED, LDMA_GUARD_QP_UNKNOWN

    struct ldma_guard_rule:
        uint64_t source[2]
        uint64_t mask[2]
        uint64_t interval_ns
        uint64_t tolerance_ns
        uint32_t *qps
        uint32_t rate
        uint32_t burst
        uint32_t operations
        uint16_t slot
        uint8_t action
        uint8_t ip_version
        uint8_t prefix
        uint8_t qp_match
        uint8_t malformed

    struct ldma_guard_ruleset:
        uint32_t count
        ldma_guard_rule *rules

    struct ldma_guard_counters:
        uint64_t packets
        uint64_t bytes
        uint64_t dropped
        uint64_t last_ns

cdef extern from "bpf/guard_session.h" nogil:
    struct guard_xdp:
        uint32_t prog_id
        uint32_t link_id
        bint generic
        char *name

    struct guard_session:
        pass

    bint guard_is_bpffs(const char *path)
    int guard_xdp_query(uint32_t ifindex, guard_xdp *ret)
    int guard_start(uint32_t ifindex, const char *directory, guard_session **ret)
    int guard_open(const char *directory, guard_session **ret)
    void guard_close(guard_session *session)
    int guard_detach(const char *directory)
    int guard_rules(guard_session *session, ldma_guard_ruleset *ret)
    int guard_replace(guard_session *session, ldma_guard_ruleset *ruleset)
    int guard_counters(guard_session *session, ldma_guard_counters *ret)
    uint64_t *guard_known_qps(guard_session *session)

cdef extern from * nogil:
    """
    #define QP_BIT(qp) (UINT64_C(1) << ((qp) % 64))
    #define qp_add(words, qp) __atomic_fetch_or(&(words)[(qp) / 64], QP_BIT(qp), __ATOMIC_RELAXED)
    #define qp_remove(words, qp) __atomic_fetch_and(&(words)[(qp) / 64], ~QP_BIT(qp), __ATOMIC_RELAXED)
    """
    uint64_t qp_add(uint64_t *words, uint32_t qp)
    uint64_t qp_remove(uint64_t *words, uint32_t qp)


RULES_MAX = LDMA_GUARD_RULES
RULE_QPS_MAX = LDMA_GUARD_RULE_QPS
QPS_END = LDMA_GUARD_QPS
RATE_MAX = LDMA_GUARD_RATE_MAX
BURST_MAX = LDMA_GUARD_BURST_MAX
ACTIONS = {"allow": LDMA_GUARD_ALLOW, "drop": LDMA_GUARD_DROP, "limit": LDMA_GUARD_LIMIT}
OPERATIONS = {ldma_operation_names[i].decode(): i for i in range(LDMA_OP_COUNT)}
QP_ANY, QP_LISTED, QP_UNKNOWN = LDMA_GUARD_QP_ANY, LDMA_GUARD_QP_LISTED, LDMA_GUARD_QP_UNKNOWN
SLOT_NEW = LDMA_GUARD_SLOT_NEW
SLOT_UNMATCHED = LDMA_GUARD_UNMATCHED
SLOT_MALFORMED = LDMA_GUARD_MALFORMED


class RuleRecord(NamedTuple):
    """Holds a struct ldma_guard_rule without the fields that follow from others (bpf/guard_rule.h)."""

    action: int
    ip_version: int
    source: bytes
    prefix: int
    operations: int
    qp_match: int
    qps: tuple
    rate: int
    burst: int
    malformed: bool
    slot: int


cdef int check(int err) except -1:
    if err < 0:
        raise OSError(-err, strerror(-err))
    return err


cdef int fill_rule(ldma_guard_rule *rule, record) except -1:
    cdef bytes source = record.source.ljust(16, b"\0")
    cdef bytes mask = ((1 << 128) - (1 << (128 - record.prefix))).to_bytes(16, "big")
    if len(source) != 16 or len(record.qps) > LDMA_GUARD_RULE_QPS:
        raise ValueError("a rule has a source of 16 bytes and a bounded number of QPs")
    memcpy(rule.source, <const char *>source, 16)
    memcpy(rule.mask, <const char *>mask, 16)
    for i in range(2):
        rule.source[i] &= rule.mask[i]
    rule.action = record.action
    rule.ip_version = record.ip_version
    rule.prefix = record.prefix
    rule.operations = record.operations
    rule.qp_match = record.qp_match
    for i in range(LDMA_GUARD_RULE_QPS):
        rule.qps[i] = record.qps[i] if i < len(record.qps) else LDMA_GUARD_NO_QP
    rule.malformed = record.malformed
    rule.slot = record.slot
    if rule.action == LDMA_GUARD_LIMIT:
        if not (0 < record.rate <= LDMA_GUARD_RATE_MAX and 0 < record.burst <= LDMA_GUARD_BURST_MAX):
            raise ValueError("a rule's rate or burst is out of bounds")
        rule.rate = record.rate
        rule.burst = record.burst
        rule.interval_ns = (1000000000 + rule.rate - 1) // rule.rate
        rule.tolerance_ns = rule.burst * rule.interval_ns
    return 0


cdef object record_of(const ldma_guard_rule *rule):
    return RuleRecord(
        action=rule.action,
        ip_version=rule.ip_version,
        source=(<const char *>rule.source)[:16],
        prefix=rule.prefix,
        operations=rule.operations,
        qp_match=rule.qp_match,
        qps=tuple([rule.qps[i] for i in range(LDMA_GUARD_RULE_QPS)
                   if rule.qps[i] != LDMA_GUARD_NO_QP]),
        rate=rule.rate,
        burst=rule.burst,
        malformed=bool(rule.malformed),
        slot=rule.slot,
    )


def is_bpffs(path: str) -> bool:
    return guard_is_bpffs(path.encode())


def xdp_query(uint32_t ifindex):
    """Returns the interface's XDP program: (id, name, id of its link or 0, whether generic), or None."""
    cdef guard_xdp xdp
    check(guard_xdp_query(ifindex, &xdp))
    if not xdp.prog_id:
        return None
    return xdp.prog_id, xdp.name.decode(errors="replace"), xdp.link_id, xdp.generic


def detach(directory: str) -> None:
    check(guard_detach(directory.encode()))


cdef class GuardSession:
    """Controls the pinned guard of one interface."""

    cdef guard_session *c

    def __dealloc__(self):
        guard_close(self.c)

    @staticmethod
    def start(uint32_t ifindex, directory: str):
        cdef GuardSession self = GuardSession.__new__(GuardSession)
        cdef bytes path = directory.encode()
        cdef const char *text = path
        cdef int err
        with nogil:
            err = guard_start(ifindex, text, &self.c)
        check(err)
        return self

    @staticmethod
    def open(directory: str):
        cdef GuardSession self = GuardSession.__new__(GuardSession)
        check(guard_open(directory.encode(), &self.c))
        return self

    def close(self):
        """Closes the session; the guard itself stays. Calling it again has no effect."""
        guard_close(self.c)
        self.c = NULL

    cdef guard_session *session(self) except NULL:
        if self.c == NULL:
            raise ValueError("the guard's session is closed")
        return self.c

    def rules(self):
        cdef ldma_guard_ruleset ruleset
        check(guard_rules(self.session(), &ruleset))
        return [record_of(&ruleset.rules[i]) for i in range(ruleset.count)]

    def replace(self, records):
        """Replaces all rules at once; those whose slot is not SLOT_NEW keep their counters."""
        cdef ldma_guard_ruleset ruleset
        cdef guard_session *c = self.session()
        cdef int err
        if len(records) > LDMA_GUARD_RULES:
            raise ValueError(f"there can be {LDMA_GUARD_RULES} rules")
        memset(&ruleset, 0, sizeof(ruleset))
        for i, record in enumerate(records):
            fill_rule(&ruleset.rules[i], record)
        ruleset.count = len(records)
        with nogil:
            err = guard_replace(c, &ruleset)
        check(err)

    def counters(self):
        """Returns, for each slot: (packets, bytes, dropped, last seen by CLOCK_MONOTONIC in ns or 0)."""
        cdef ldma_guard_counters[256] counters
        if LDMA_GUARD_COUNTERS > 256:
            raise AssertionError("counters outgrew their buffer")
        check(guard_counters(self.session(), counters))
        return [(c.packets, c.bytes, c.dropped, c.last_ns)
                for c in counters[:LDMA_GUARD_COUNTERS]]

    def known_qps(self):
        """Returns the numbers of the QPs that exist, in order."""
        cdef uint64_t *words = guard_known_qps(self.session())
        cdef uint32_t word, bit
        cdef list qps = []
        for word in range(LDMA_GUARD_QP_WORDS):
            if words[word]:
                for bit in range(64):
                    if words[word] >> bit & 1:
                        qps.append(word * 64 + bit)
        return qps

    def change_qps(self, add, remove):
        """Adds QPs, then removes others. The bit of a QP that is in neither list never changes."""
        cdef uint64_t *words = guard_known_qps(self.session())
        cdef uint32_t qp
        for qp in (*add, *remove):
            if qp >= LDMA_GUARD_QPS:
                raise ValueError(f"no QP has the number {qp}")
        for qp in add:
            qp_add(words, qp)
        for qp in remove:
            qp_remove(words, qp)
