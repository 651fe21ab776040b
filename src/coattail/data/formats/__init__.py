"""Readers and writers of files: documents, the XMC format, lines, word vectors."""
