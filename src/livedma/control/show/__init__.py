# SPDX-License-Identifier: BSD-2-Clause
"""Makes what people are shown of a server: frames, once for all views."""
