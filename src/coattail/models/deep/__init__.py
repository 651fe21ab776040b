"""Deep models; the only package that imports torch (and only in its modules, not here)."""
