"""Backends whose gradients are graphs that the engine supplies."""

import mithril.base.numpy  # noqa: F401  whole, before what is in here asks for it
