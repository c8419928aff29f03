"""DMA memory: what a device may reach, where it comes from and what it costs the host."""
