"""Training a task: the loop, its state, the run directory.

Read: trainer, interruption, state, progress, run_directory, tracking, memory, run.
"""
