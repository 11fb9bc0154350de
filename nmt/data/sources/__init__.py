"""Data sources, a file each: the classes that `data=` on the command line chooses.

A class has `load() → Splits` for translation, or `labelled() → LabelledSplits` for classification.
`load` takes an argument `keep` (nmt.data.parts.Keep) if the text may be larger than memory. A class
attribute `pictures = True` declares that source lines name pictures.

Read: text, table, the rest in any order.
"""
