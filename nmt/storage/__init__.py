"""Files on disk: atomic replacement, locks, checkpoints and the upgrade of old checkpoints.

Reading order: files, checkpoint, upgrade, the rest in any order.
"""
