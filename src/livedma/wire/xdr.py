# SPDX-License-Identifier: BSD-2-Clause
"""Reads XDR (RFC 4506) from untrusted bytes: every step is checked against the end.

A reader never copies more than it was asked for and never moves past its end: it raises `Malformed`
instead. Its subclass `Short` says that the bytes ended, which is no fault when only the first
packet of a message was captured.
"""

from livedma._native.xdr import Malformed, Reader, Short

__all__ = ["Malformed", "Reader", "Short"]
