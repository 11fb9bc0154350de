"""Files on disk: files that are written whole or not at all, checkpoints, upgrades of checkpoints of older versions.

Imported by: report, task, training, configuration, evaluate.
Read: files, checkpoint, upgrade.
"""
