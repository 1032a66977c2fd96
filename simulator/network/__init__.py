"""What travels between devices: collectives as rounds over the graph, and what they cost."""
