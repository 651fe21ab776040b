"""HTTN and its rivals: head classifiers lend to the tail."""
