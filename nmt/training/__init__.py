"""Training of a network: training loop, training state and run folder.

Modules in reading order: epoch_plan, trainer, training_loop, gradient, best_weights, state,
checkpoint_store, interruption, run_directory, training_run, then the others in any order.
"""
