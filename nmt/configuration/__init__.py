"""Turns what users type, or a checkpoint, into objects that run. The only part that knows Hydra and YAML.

Read: command_line, help, compose, configure, settings, training_settings, model_settings, commands, check, faults, build,
fine_tuning, tasks, runs, backtranslation, sweeps, launching, reports, analysis_settings, loading, fingerprint, devices.
"""
