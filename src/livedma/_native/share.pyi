# SPDX-License-Identifier: BSD-2-Clause
PIN: str

class ShareSession:
    """Holds the maps of one address. A port that is given the session joins the address with it."""

    @staticmethod
    def open(directory: str, address: bytes = b"", interface: int = 0) -> ShareSession:
        """Opens the maps pinned in the directory; address (IPv4) and interface are for a packet
        port.
        """
    @staticmethod
    def start(directory: str, address: bytes = b"", interface: int = 0) -> ShareSession:
        """Makes new maps, pinned in the directory."""
    def capsule(self) -> object:
        """Returns a struct ldma_share, for a port of another extension; valid as long as the
        session.
        """
    def close(self) -> None:
        """Closes the session; the pinned maps stay. Calling it again has no effect."""
    def claim(self, service: int) -> None:
        """Lets requests to the service, an id of 32 bits, come to this process. OSError
        (EADDRINUSE): they go to another living process.
        """
    def release(self, service: int) -> None:
        """Ends a claim, if there is one."""
    def leave(self) -> int:
        """Gives slot and claims back; returns how many other processes have a slot."""
    @property
    def count(self) -> int:
        """Counts the processes that have a slot."""
