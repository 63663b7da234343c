"""How programs run, whatever the backend: memory, values of the host, events that are timed."""
