"""Files on disk: files that are written whole or not at all, locks, checkpoints, upgrades of checkpoints of older versions.

Imported by: analysis, configuration, corpus, drawing, exporting, inference, serving, sweep, task, tracker, training,
average, cite, compare, evaluate, export, serve.
Read: files, lock, checkpoint, upgrade.
"""
