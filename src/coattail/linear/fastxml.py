"""Instance trees (placeholder until written)."""
class Fastxml:
    def __init__(self, params): self.params = params
