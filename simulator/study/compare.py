"""The same traffic on several systems."""

from __future__ import annotations

from collections.abc import Callable

from simulator.catalog import Catalog
from simulator.scenario import Scenario
from simulator.simulation import Progress, Result, prepare, run


def compare(
    scenario: Scenario,
    catalog: Catalog,
    progress: Callable[[str], Progress | None] = lambda topology: None,
) -> tuple[Result, ...]:
    """Serve the scenario on each of its systems, in order.

    Every system is prepared before the first one runs, so a bad input ends the study at once. With
    ``scale_load`` gpus the load is that of the first system times the ratio of GPUs. ``progress``
    gives the progress callback of a system.
    """
    plans = [prepare(scenario.on(topology), catalog) for topology in scenario.topologies]
    gpus = [len(plan.topology.gpus) for plan in plans]
    factors = [count / gpus[0] if scenario.scale_load == "gpus" else 1.0 for count in gpus]
    return tuple(
        run(plan, catalog, rate_factor=factor, progress=progress(plan.topology.system.name))
        for plan, factor in zip(plans, factors, strict=True)
    )
