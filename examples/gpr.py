"""Regression by a Gaussian process that finds the width of its kernel.

`python -m examples.gpr` prints:

    width 0.92, at most 0.11 from the curve
"""

from mithril.examples.gpr import Fit, fit, main, process

__all__ = ["Fit", "fit", "main", "process"]

if __name__ == "__main__":
    main()
