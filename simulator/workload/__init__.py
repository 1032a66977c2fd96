"""Traffic: requests with a time of arrival, a prompt and an output, made up or replayed from a trace."""

from simulator.workload.spec import Preset, Workload
from simulator.workload.traffic import Traffic, TrafficSummary, traffic

__all__ = ["Preset", "Traffic", "TrafficSummary", "Workload", "traffic"]
