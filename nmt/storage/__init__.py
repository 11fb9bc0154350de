"""Files on disk: files that are written whole or not at all, locks, checkpoints, upgrades of checkpoints of older versions.

Imported by: inference, report, task, training, configuration, evaluate, average, cite.
Read: files, lock, checkpoint, upgrade.
"""
