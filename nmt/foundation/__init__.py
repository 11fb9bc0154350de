"""Base of all other folders: values that parts exchange, ranges, errors, progress, ranks.

Read: interfaces, ranges, errors, the rest in any order.
"""
