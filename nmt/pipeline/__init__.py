"""From settings to finished work: trainings, fine-tuning, back-translation, sweeps, servers.

Read: assembly, run_training, fine_tuning, the rest in any order.
"""
