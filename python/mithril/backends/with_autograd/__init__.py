"""Backends of frameworks that differentiate by themselves."""
