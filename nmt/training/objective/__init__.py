"""Objectives of training: called with (network, batch, updates done so far, updates in all), it
returns a `Loss`. An objective is one file here and one YAML in conf/objective.

Read: cross_entropy, scheduled_sampling, r_drop, minimum_risk, distillation.
"""
