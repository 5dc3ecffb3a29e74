"""The Super Mario Bros world: a batched NES of our own, and what stands on it."""
