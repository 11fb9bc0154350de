"""Base package of nmt, imported by all other packages: tensor interfaces, value ranges, errors,
progress displays and distributed ranks.

Modules in reading order: interfaces, ranges, errors, then the others in any order.
"""
