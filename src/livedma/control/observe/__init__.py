# SPDX-License-Identifier: BSD-2-Clause
"""Makes snapshots of a server: from the wire, from inside, and from both as one."""
