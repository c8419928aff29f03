# SPDX-License-Identifier: BSD-2-Clause
"""Shows what a source sees of any server: as a live table, as text, and as metrics."""
