# SPDX-License-Identifier: BSD-2-Clause
"""The views for people. They show frames and events of a server, and add nothing."""
