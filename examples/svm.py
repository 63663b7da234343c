"""A support vector machine by gradient steps.

`python -m examples.svm` prints:

    told apart: 96%
"""

from mithril.examples.svm import fit, main

__all__ = ["fit", "main"]

if __name__ == "__main__":
    main()
