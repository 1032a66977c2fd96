"""``python -m simulator`` is ``llmsim``."""

from simulator.cli import main

main()
