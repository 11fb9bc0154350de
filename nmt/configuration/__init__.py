"""Composes and checks the configuration of every command: its command line, its --help, its
settings, its parts.

Read: command_line, compose, configure, settings, training_settings, check, build, faults, the rest
in any order.
"""
