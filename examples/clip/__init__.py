"""As `mithril.examples.clip`."""
