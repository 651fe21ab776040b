"""Models that read rankings: calibration, rerank, ensembles, boosted evidence."""
