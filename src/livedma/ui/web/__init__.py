# SPDX-License-Identifier: BSD-2-Clause
"""The web page of a server: its live state, for browsers and programs."""
