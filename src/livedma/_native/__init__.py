# SPDX-License-Identifier: BSD-2-Clause
"""This package holds the C core behind Python. Internal: use `livedma.wire`, `livedma.capture` and
the like."""
