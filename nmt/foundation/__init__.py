"""The base of everything else: the values passed between the parts, types with ranges, errors for users.

Imported by: everything.
Read: interfaces, ranges, errors.
"""
