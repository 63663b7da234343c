"""Small tools that the original offers under this path."""
