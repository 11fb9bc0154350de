"""Finding good outputs, step by step, under a `Step` that gives the next word's log-probabilities.
A search is one file here and one YAML in conf/search; a search does not depend on the model behind
the step.

Read: greedy, breadth_first, beam, penalty, sample, the rest in any order.
"""
