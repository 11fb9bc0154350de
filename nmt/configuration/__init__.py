"""Composes and validates the configuration of every command, and implements the command line and
--help.

Reading order: command_line, compose, configure, settings, training_settings, check, faults, the
rest in any order.
"""
