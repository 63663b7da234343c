"""NumPy, loaded while Ctrl-C waits: what is broken off cannot be loaded again in the process."""

from mithril.base.process import signals_wait

with signals_wait():
    import numpy as np

__all__ = ["np"]
