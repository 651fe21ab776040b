"""More than one run: queue, tune, compare, exchange, trace back."""
