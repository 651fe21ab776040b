"""A candidate outside the pipeline: tag new texts, bundle it, give it one more label."""
