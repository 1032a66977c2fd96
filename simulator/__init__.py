"""llmsim: a discrete-event simulator of LLM serving clusters."""

__version__ = "0.1.0"
