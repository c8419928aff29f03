# SPDX-License-Identifier: BSD-2-Clause
"""Gets packets from capture files, live interfaces and devices."""
