"""Execution of programs on any backend: emitted source, users' ops, memory, profiling."""
