"""HTTP server for translation and classification, with a web page that explains translations.

Reading order: app, request_fields, answers, served_models, batcher, passages, markup, the rest in
any order.
"""
