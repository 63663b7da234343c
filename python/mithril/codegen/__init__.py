"""The Python that is made from the op registry when the package is built."""
