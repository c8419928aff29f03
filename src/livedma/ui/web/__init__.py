"""The web page of a server: what it is and does, live, for browsers and programs."""
