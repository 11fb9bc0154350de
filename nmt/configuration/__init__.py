"""Composes and validates the configuration of every command, and implements the command line and
--help.

Reading order: command_line, configure, compose, overrides, yaml_files, check, settings,
training_settings, the rest in any order.
"""
