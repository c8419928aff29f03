# SPDX-License-Identifier: BSD-2-Clause
"""Measurements: ours, the peers' and the limit, side by side in one run (`python -m bench`)."""
