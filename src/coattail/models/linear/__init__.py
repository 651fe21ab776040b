"""Linear models: one-vs-rest, probabilistic label trees, instance trees."""
