"""What lies on disk: files that are written whole or not at all, checkpoints, and what older versions wrote.

Imported by: report, task, training, configuration, evaluate.
Read: files, checkpoint, upgrade.
"""
