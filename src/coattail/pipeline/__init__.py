"""What params.yaml means; how a stage starts and what it leaves.

Face: `registry` (stages and models), `candidates.candidates`, `schema.check`, `overlay.use`,
`runner.run`, `stage_result.StageResult`, `code_digest`, `model_digest`.
"""
