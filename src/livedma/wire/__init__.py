"""Packets for people: decode, encode, print, and turn into columns."""
