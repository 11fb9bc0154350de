"""Files on disk: atomic replacement, locks, checkpoints and the upgrade of old checkpoints.

Reading order: files, lock, checkpoint, upgrade.
"""
