"""Models that read rankings: calibration, reranking, ensembles.

Face: `rerank.Reranker`, `ensemble.Ensemble`, `trade_off.RerankParams`.
"""
