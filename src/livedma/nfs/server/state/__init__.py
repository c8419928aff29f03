# SPDX-License-Identifier: BSD-2-Clause
"""What a server remembers of its clients: sessions, open files, locks, delegations."""
