"""Backends whose gradients are graphs that the engine supplies."""
