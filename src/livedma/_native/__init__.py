# SPDX-License-Identifier: BSD-2-Clause
"""The C core behind Python. Internal: use `livedma.wire`, `livedma.capture` and the like."""
