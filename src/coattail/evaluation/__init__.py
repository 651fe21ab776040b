"""How good a ranking is: metrics, intervals, every candidate scored, the leaderboard."""
