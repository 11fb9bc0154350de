"""A server that translates for other programs, and a page that shows how.

Read: limits, questions, batcher, models, passages, markup, answers, insight, specification, measures, app.
"""
