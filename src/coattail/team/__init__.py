"""What a team shares: the tracking server, its users, its backups, and a check of all of it.

Face: `server`, `users`, `backup`, `server_check`, `finding.Finding`.
"""
