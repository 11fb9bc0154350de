"""Assembly of a training run: builds all components from validated settings and, if given, a
checkpoint.

Modules in reading order: run_parts, translation_parts, then the others in any order.
"""
