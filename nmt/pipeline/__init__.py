"""Executes commands from validated settings: training, fine-tuning, back-translation, sweeps and
servers.

Reading order: assembly, run_training, the rest in any order.
"""
