"""Data sources, a file each: what `data=` on the command line names.

Read: text, table, the rest in any order.
"""
