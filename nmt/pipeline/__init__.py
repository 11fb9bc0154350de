"""From settings to finished work: assembly of a training, running it, fine-tuning, back-translation, sweeps.

Read: assembly, run_training, fine_tuning, the rest in any order.
"""
