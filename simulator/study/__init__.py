"""Questions that take many simulations: comparisons, and what a change would buy."""
