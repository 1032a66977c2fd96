"""The serving engine: requests, replicas that step over batches, and the router in front of them."""
