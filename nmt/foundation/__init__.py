"""The base of everything else: the values passed between the parts, types with ranges, errors and messages for users.

Read: interfaces, ranges, errors, extras, terminal, progress, ranks.
"""
