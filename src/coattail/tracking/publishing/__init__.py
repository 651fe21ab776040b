"""The leaf of the pipeline in MLflow: one run per candidate, models, pages."""
