"""As `mithril.examples.gpt`."""
