"""From a dataset's name to arrays: download, read, preprocess, augment.

Face: `download.acquire`, `preprocess.prepare`, `features.Features`, `augment.augment`.
"""
