"""The original's import paths for what computes; everything here is defined elsewhere."""
