"""Files on disk: atomic replacement, locks, checkpoints and the upgrade of old checkpoints.

Modules in reading order: files, lock, checkpoint, upgrade.
"""
