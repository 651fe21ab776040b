"""The end of the pipeline in MLflow: one run per candidate, models, pages.

Face: `gather.show`, `gather.sync`, `publish.publish`.
"""
