"""What people see: the terminal, the web page, metrics. All of it shows what `control` knows."""
