"""Sweeps of both papers: every run has valid settings, and neighbouring models differ only as in the paper."""

from functools import cache

import pytest

from nmt.configuration.compose import compose
from nmt.configuration.configure import configure
from nmt.foundation.configurations import flat, learnt_settings
from nmt.pipeline.sweep_command import TrainingJob

ATTENTION = {"attention", "decoder", "window"}


@cache
def planned(sweep):
    job = TrainingJob("train", [f"sweep={sweep}", "data=reverse"], [])
    return [tuple(overrides) for overrides in job.grid(job.sweeper.grids)]


@cache
def settings(overrides):
    return flat(learnt_settings(compose("train", overrides)))


def changed(before, after):
    """Keys that differ between two runs; an option of encoder, decoder, attention or window is named by its group."""
    values = settings(before), settings(after)
    keys = {
        key
        for key in values[0].keys() | values[1].keys()
        if values[0].get(key) != values[1].get(key)
    }
    return {
        key.partition(".")[0] if key.split(".")[0] in ATTENTION | {"encoder"} else key
        for key in keys
    }


@pytest.mark.parametrize(("sweep", "count"), [("bahdanau2015", 5), ("luong2015", 12)])
def test_first_seed_of_all_models_is_trained_first(sweep, count):
    runs = planned(sweep)
    seeds = [next(o for o in overrides if o.startswith("seed=")) for overrides in runs]
    assert seeds == [f"seed={seed}" for seed in (1, 2, 3) for _ in range(count)]
    without_seed = [[o for o in overrides if not o.startswith("seed=")] for overrides in runs]
    assert without_seed[:count] == without_seed[count : 2 * count] == without_seed[2 * count :]


@pytest.mark.parametrize(
    ("sweep", "count"),
    [("bahdanau2015", 5), pytest.param("luong2015", 12, marks=pytest.mark.exhaustive)],
)
def test_every_model_of_a_paper_has_valid_settings(sweep, count):
    for overrides in planned(sweep)[:count]:
        configure("train", overrides)  # without errors


def test_rungs_of_luong_differ_in_one_technique():
    base, reverse, dropout, location, feeding, local, *scores = planned("luong2015")[:12]
    assert changed(base, reverse) == {"encoder"}
    assert changed(reverse, dropout) == {"model.dropout", "model.readout_dropout"}
    assert changed(dropout, location) == {"attention", "decoder"}
    assert changed(location, feeding) == {"decoder"}
    assert changed(feeding, local) == {"attention", "window"}
    assert all(changed(feeding, of_table_4) <= {"attention", "window"} for of_table_4 in scores)


def test_models_of_bahdanau_differ_in_length_attention_and_updates():
    search, longer_search, plain, longer_plain, star = planned("bahdanau2015")[:5]
    assert changed(search, longer_search) == changed(plain, longer_plain) == {"filters.max_length"}
    assert changed(search, plain) == {"encoder", "attention", "decoder"}
    assert changed(longer_search, star) == {"trainer.max_updates"}
