"""GPT: `mithril.examples.gpt.model`."""
