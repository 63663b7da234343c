"""The version of the package, as pyproject.toml has it."""

PACKAGE_VERSION = "0.1.0"

__all__ = ["PACKAGE_VERSION"]
