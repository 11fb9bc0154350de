"""Identity of a training run: a digest of its settings and its data."""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.configuration.check import faults_of
from nmt.configuration.compose import choices_of, compose
from nmt.foundation.configurations import digest, learnt_settings
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigErrors, RunView, refuse, shown
from nmt.foundation.progress import waiting
from nmt.pipeline.assembly.run_parts import fingerprints
from nmt.pipeline.fingerprint import named_files

FINGERPRINTED = ("train", "validation", "test", "config")
"""Data keys that name files. The identity of a run depends on the content of the files, not on the
values of these keys."""


class RunIdentities:
    """Identities of the runs of a training command.

    command: name of a training command
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self._fingerprints: dict[str, Any] = {}

    def of(self, overrides: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Returns a pair: the identity of a run, and the values of the overridden keys.

        The identity is a digest of the settings and the data. The name of the run is formed from
        the values.
        """
        typed = {text.partition("=")[0].lstrip("+~"): text.partition("=")[2] for text in overrides}
        typed.pop("sweep", None)  # the type of sweep does not change a run
        try:
            config = compose(self.command, overrides)
            choices = choices_of(self.command, overrides)
            refuse(faults_of("data", config["data"]))
            named = named_files(config)
        except ConfigErrors:  # an invalid configuration fails when the run itself is started
            return digest([self.command, *overrides]), typed
        view = RunView(config, {})
        values = {key: shown(choices.get(key, view.value(key))) for key in typed}
        settings = learnt_settings(config)
        try:
            data: Any = self.fingerprints(config)
            # Moving a file without changing its content does not change the run.
            settings["data"] = {
                key: value for key, value in config["data"].items() if key not in FINGERPRINTED
            }
        except UserError as error:
            data = str(error)
        for dotted_key, content in named.items():
            *groups, name = dotted_key.split(".")
            functools.reduce(operator.getitem, groups, settings)[name] = content
        return digest([self.command, settings, data]), values

    def fingerprints(self, config: Mapping[str, Any]) -> Any:
        """Returns the hashes of the data sets of a configuration; reads each data set once."""
        # The settings of a run contain copied pairs already, so its fingerprint has none.
        config = {**config, "copied_pairs": 0.0}
        read = {name: config.get(name) for name in ("data", "filters", "store")}
        key = digest(read)
        if key not in self._fingerprints:
            with waiting("reading the training data"):
                self._fingerprints[key] = fingerprints(self.command, config)
        return self._fingerprints[key]
