"""Readers and writers of files: documents, the XMC format, lines, word vectors.

Face: `documents`, `xmc.read_xmc`, `lines`, `word_vectors`.
"""
