"""Assembly of a training run: builds all components from validated settings and, if given, a
checkpoint.

Reading order: run_parts, translation_parts, the rest in any order.
"""
