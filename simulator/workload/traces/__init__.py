"""Readers of recorded traffic, one file per format."""

from simulator.workload.traces.reader import FORMATS, Trace, read_trace

__all__ = ["FORMATS", "Trace", "read_trace"]
