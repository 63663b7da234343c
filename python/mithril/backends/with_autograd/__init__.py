"""Backends of frameworks that differentiate by themselves."""

import mithril.base.numpy  # noqa: F401  whole, before what is in here asks for it
