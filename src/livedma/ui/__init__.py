# SPDX-License-Identifier: BSD-2-Clause
"""Shows a server to people. Views show its frames and events, and add nothing."""
