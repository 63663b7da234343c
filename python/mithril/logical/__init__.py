"""Models before they are compiled: their wires, how they grow and change, what is said of them."""
