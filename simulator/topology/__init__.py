"""Devices joined by links: systems as data, the graph that they make, and its routes."""
