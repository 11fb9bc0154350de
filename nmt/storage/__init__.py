"""Files on disk: atomic replacement, locks, checkpoints and the upgrade of old checkpoints.

Read: files, lock, checkpoint, upgrade.
"""
