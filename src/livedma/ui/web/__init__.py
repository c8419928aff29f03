# SPDX-License-Identifier: BSD-2-Clause
"""Shows a server's live state on a web page, for browsers and programs."""
