# SPDX-License-Identifier: BSD-2-Clause
"""livedma top: shows a server on a terminal. The picture is made as text, and textual shows it."""
