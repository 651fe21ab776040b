"""How good a ranking is: metrics, intervals, all candidates scored, the leaderboard.

Face: `metrics`, `scoring.evaluate`, `leaderboard`, `plots`.
"""
