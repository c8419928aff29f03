# SPDX-License-Identifier: BSD-2-Clause
"""What two devices counted while they talked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from endpoints import Rxe
from ours import Ours

_SETTLING_S = 60.0
#: What both count, under the same names, when something goes wrong.
ERRORS = (
    *("duplicate_request", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err"),
    *("rcvd_rnr_err", "send_rnr_err", "retry_exceeded_err", "retry_rnr_exceeded_err"),
)
KERNEL_ERRORS = (*ERRORS, "send_err", "link_downed")
OUR_ERRORS = (
    *(*ERRORS, "ack_timeout", "out_of_sequence", "packet_seq_err", "req_cqe_error"),
    *("dropped_icrc", "dropped_malformed", "dropped_no_qp", "dropped_not_peer"),
    *("dropped_response", "dropped_event", "dropped_request"),
    *("remote_access_err", "remote_invalid_req_err", "remote_op_err"),
)
#: What follows where a requester did not get its answer in time, and asked again.
ASKED_AGAIN = frozenset(
    ("ack_timeout", "completer_retry_err", "duplicate_request", "dropped_response")
)
_STALLS = 2  # as often as a machine stands still for seconds in one scenario; more is a mistake


@dataclass
class Wire:
    unanswered: int = 0  #: packets of ours that may have found the kernel's queue pair gone


@contextlib.contextmanager
def no_errors(kernel: Rxe, ours: Ours) -> Iterator[Wire]:
    """Neither counts an error, and each counts the packets that the other sent.

    The last words of a connection manager may still be under way at the end. Where the machine was
    so busy that an answer took seconds, what was then asked again is no error.
    """
    wire = Wire()
    before = kernel.counters(), ours.device.counters
    yield wire
    end_s = time.monotonic() + _SETTLING_S
    while True:
        theirs, own = (
            {name: new[name] - old[name] for name in new}
            for old, new in zip(before, (kernel.counters(), ours.device.counters), strict=True)
        )
        lost = own["sent_pkts"] - theirs["rcvd_pkts"], theirs["sent_pkts"] - own["rcvd_pkts"]
        agree = 0 <= lost[0] <= wire.unanswered and lost[1] == 0
        if agree or time.monotonic() > end_s:
            break
        time.sleep(0.05)
    waited_in_vain = own["ack_timeout"] + theirs["completer_retry_err"]
    excused = ASKED_AGAIN if 0 < waited_in_vain <= _STALLS else frozenset()
    for counted, names in ((theirs, KERNEL_ERRORS), (own, OUR_ERRORS)):
        wrong = {name: counted[name] for name in names if counted[name] and name not in excused}
        assert not wrong, wrong  # this module's assertions say nothing by themselves
    assert agree, f"of ours and of the kernel's, {lost} packets were lost"
    assert own["sent_pkts"] + own["rcvd_pkts"] > 0
