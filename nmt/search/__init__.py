"""Search algorithms that generate outputs token by token from the log-probabilities of a `Step`.

A search does not depend on the model behind the step. Each search is one file in this folder and
one YAML file in conf/search.

Reading order: greedy, breadth_first, beam, penalty, sample, the rest in any order.
"""
