# SPDX-License-Identifier: BSD-2-Clause
"""Makes hosts in network namespaces, traffic between them, and experiments."""
