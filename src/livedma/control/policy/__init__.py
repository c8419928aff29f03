# SPDX-License-Identifier: BSD-2-Clause
"""Policies make a plan from a diagnosis. They and their arithmetic are pure."""
