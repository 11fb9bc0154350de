"""Files on disk: files that are written whole or not at all, locks, checkpoints, upgrades of checkpoints of older versions.

Read: files, lock, checkpoint, upgrade.
"""
