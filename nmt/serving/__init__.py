"""A server that translates for other programs, and its page that explains translations.

Read: app, request_fields, answers, served_models, batcher, passages, markup, the rest in any order.
"""
