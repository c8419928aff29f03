"""What stands behind the commands that try and measure the device: perf and rping."""
