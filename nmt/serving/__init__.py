"""HTTP server for translation and classification, with a web page that explains translations.

Modules in reading order: app, request_fields, requested_constraint, answers, explanation_answers,
served_models, batcher, passages, markup, then the others in any order.
"""
