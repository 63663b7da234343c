"""The original's import paths for the C backend."""
