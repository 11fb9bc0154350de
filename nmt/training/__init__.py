"""Training of a network: loop, state and run directory.

Reading order: epoch_plan, trainer, state, interruption, run_directory, training_run, the rest in
any order.
"""
