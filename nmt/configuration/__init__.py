"""From what people type to objects that run, and from checkpoints back to them. The only part that knows Hydra and YAML.

Imported by: commands.
Read: command_line, compose, configure, settings, check, faults, build, runs, loading, devices, allocator.
"""
