"""Training objectives: callables (network, batch, number of updates done so far, total number of
updates) → `Loss`.

Each objective is one file in this folder and one YAML file in conf/objective.

Reading order: cross_entropy, scheduled_sampling, r_drop, minimum_risk, distillation.
"""
