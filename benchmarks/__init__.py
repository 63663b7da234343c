"""What mithril costs, against PyTorch, JAX and NumPy: `python -m benchmarks`.

Nothing is asserted: rows print medians, minima, ratios and whether the outputs agree.
"""
