"""Studies: one table or figure of a paper, run here, judged by the paper's own claims, written up.

Face: `study_params.load`, `running.run`, `outcome.load`, `study_pages.write`.
"""
