"""RDMA verbs on the RoCEv2 device in user space, and its connection manager."""
