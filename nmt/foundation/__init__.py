"""Base package of nmt, imported by all other packages: tensor interfaces, value ranges, errors,
progress displays and distributed ranks.

Reading order: interfaces, ranges, errors, the rest in any order.
"""
