"""Training of a network: training loop, training state and run directory.

Reading order: epoch_plan, trainer, state, interruption, run_directory, training_run, the rest in
any order.
"""
