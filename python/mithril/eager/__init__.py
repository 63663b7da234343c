"""Ops as methods of backends: on arrays they run at once, on connections they are recorded."""
