"""The `coattail` command; each command imports what it needs, so that --help is instant.

Face: `main.main`.
"""
