"""The models that are measured, written for mithril and by hand for each framework."""
