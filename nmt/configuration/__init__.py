"""Composes and validates the configuration of every command, and implements the command line and
--help.

Modules in reading order: command_line, configure, compose, overrides, yaml_files, check, settings,
training_settings, then the others in any order.
"""
