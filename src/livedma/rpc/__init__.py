# SPDX-License-Identifier: BSD-2-Clause
"""Makes remote procedure calls: XDR and ONC RPC, with clients and servers over RDMA and TCP."""
