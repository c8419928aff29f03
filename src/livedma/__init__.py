"""livedma: RDMA storage whose DMA memory grows and shrinks while it is in use."""
