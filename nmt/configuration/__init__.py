"""Turns what users type, or a checkpoint, into objects that run. The only part that knows Hydra and YAML.

Imported by: commands.
Read: command_line, compose, configure, settings, check, faults, build, runs, loading,
fingerprint, devices, allocator.
"""
