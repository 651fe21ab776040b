"""coattail: long-tailed extreme multi-label text classification."""

__version__ = "0.1.0"
