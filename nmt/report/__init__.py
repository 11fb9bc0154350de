"""Output for users: messages at the terminal, pages, pictures.

Imported by: task, training, configuration, translate, align, label.
Read: terminal, attention_map, explanation, plots.
"""
