"""One self-contained page about a run, and the same in a terminal.

Face: `collect.collect`, `page.write`, `terminal`.
"""
