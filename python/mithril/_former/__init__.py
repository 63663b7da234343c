"""Modules under the names that pickles of version 0.1 carry. The folder is on the package's path:
`mithril._initial` is found here."""
