"""Remote procedure calls: XDR, ONC RPC and its framings. Nothing here does I/O by itself."""
