"""Readers of recorded traffic, one file per format."""

from simulator.workload.traces.reader import Trace, read_trace

__all__ = ["Trace", "read_trace"]
