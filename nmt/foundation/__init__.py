"""What everything else stands on: the values that cross borders between the parts, types with ranges, errors for people.

Imported by: everything.
Read: interfaces, ranges, errors.
"""
