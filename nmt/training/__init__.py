"""Training a task: the loop, its state, the run directory.

Read: epoch_plan, trainer, state, interruption, run_directory, training_run, the rest in any order.
"""
