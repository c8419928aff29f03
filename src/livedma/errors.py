"""What can go wrong, in words for people."""


class LivedmaError(Exception):
    """Its text is one sentence: what is wrong and what to do. Commands print it and exit with 1."""
