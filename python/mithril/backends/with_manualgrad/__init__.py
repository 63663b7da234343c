"""Backends whose gradients are graphs that the engine supplies."""

import mithril._numpy  # noqa: F401  whole, before what is in here asks for it
