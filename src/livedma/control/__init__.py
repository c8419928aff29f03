"""What limits a connection, what to do about it, and doing it: diagnosis, policies, controller."""
