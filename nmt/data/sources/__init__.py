"""Data sources, one class per file; `data=` on the command line selects a class.

A class defines `load() → Splits` for translation, or `labelled() → LabelledSplits` for
classification. If the data may exceed memory, `load` has a parameter `keep` (nmt.data.parts.Keep).
The class attribute `pictures = True` declares that source lines contain image names.

Modules in reading order: text, table, then the others in any order.
"""
