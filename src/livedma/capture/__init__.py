"""Packets from capture files and from live interfaces."""
