"""What people look at: all of it shows frames and events of a server, and adds nothing."""
