"""Base of all other folders: values that parts exchange, ranges, errors, progress, ranks. Imports no other folder.

Read: interfaces, ranges, errors, the rest in any order.
"""
