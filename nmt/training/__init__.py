"""Training a task: the loop, its state, the run directory.

Imported by: configuration.
Read: trainer, state, progress, run_directory, run.
"""
