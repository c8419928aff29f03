# SPDX-License-Identifier: BSD-2-Clause
"""Carries plans out on a live server, and checks that they helped."""
