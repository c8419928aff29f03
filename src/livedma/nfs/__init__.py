"""NFSv4.1 and 4.2: a server of a directory, and a client."""
