"""A candidate outside the pipeline: tag new texts, bundle it, give it one more label.

Face: `tagger.Tagger`, `bundle.bundle`, `add_label.add_label`.
"""
