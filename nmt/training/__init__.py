"""Training a task: the loop, its state, the folder it leaves behind.

Imported by: configuration.
Read: trainer, state, progress, run_directory, run.
"""
