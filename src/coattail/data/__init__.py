"""From a dataset's name to arrays: download, read, preprocess, `Features`, augment."""
