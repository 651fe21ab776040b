"""coattail: long-tailed extreme multi-label text classification."""

__version__ = "0.2.0"
