"""Example models under the paths of the documents; the repository's `examples` re-exports them."""
