"""What params.yaml means: sections, overlays, candidates, and how a stage starts."""
