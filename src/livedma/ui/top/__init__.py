"""livedma top: a server on a terminal. What is shown is text first, and textual puts it up."""
