"""Executes commands from validated settings: training, fine-tuning, back-translation, sweeps and
servers.

Modules in reading order: assembly, run_training, backtranslation, then the others in any order.
"""
