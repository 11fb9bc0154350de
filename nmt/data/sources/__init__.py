"""Data sources, a file each: the classes that `data=` on the command line chooses.

Read: text, table, the rest in any order.
"""
