"""Files on disk: files that are written whole or not at all, locks, checkpoints, upgrades of checkpoints of older versions.

Imported by: analysis, configuration, corpus, drawing, inference, sweep, task, tracker, training, average, cite, compare,
evaluate.
Read: files, lock, checkpoint, upgrade.
"""
