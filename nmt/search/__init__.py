"""Search algorithms. A search generates outputs token by token from next-token log-probabilities.

The log-probabilities come from a `Step`; a search does not depend on the model behind it. Each
search is one file in this folder and one YAML file in conf/search.

Modules in reading order: greedy, penalty, beam_state, finished_hypotheses, breadth_first, beam,
sample, then the others in any order.
"""
