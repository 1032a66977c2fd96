"""Meanings of a record: latency, ledger, summary, bounds, timeline. Pure functions of facts."""
