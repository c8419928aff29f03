"""Hosts in network namespaces, traffic between them, experiments."""
