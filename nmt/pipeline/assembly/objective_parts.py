"""Objective of a translation task, with its teachers (objective.teacher) and the generator of
candidate translations."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nmt import components
from nmt.configuration.training_settings import TrainSettings
from nmt.data import as_list
from nmt.data.preparation import PreparedData
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import broken, refuse
from nmt.inference.candidates import Candidates
from nmt.inference.translator import Translator
from nmt.loading import load
from nmt.metric import Metric
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.checkpoint import Checkpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Teachers:
    """Teacher models for knowledge distillation (objective.teacher).

    translator: ensemble of all teachers
    paths: path of each teacher
    """

    translator: Translator
    paths: Sequence[str]

    @classmethod
    def of(cls, config: components.Config, device: torch.device) -> "Teachers | None":
        """Loads the teachers; returns None if the objective uses no teachers.

        Raises UserError if a teacher is a classifier.
        """
        if "teachers" not in _arguments(config):
            return None
        paths = as_list(config["objective"]["teacher"])
        teachers = load(paths, str(device), key="objective.teacher")
        if not isinstance(teachers, Translator):
            raise UserError(
                f"objective.teacher={', '.join(paths)}: every teacher must be a translation "
                "model, not a classifier"
            )
        return cls(teachers, paths)

    def check(self, network: Seq2Seq, data: PreparedData, settings: TrainSettings) -> None:
        """Raises ConfigErrors if the teachers cannot read the batches of the student network.

        Teachers must have the same languages, vocabulary, source columns and image input as the
        student.
        """
        key = "objective.teacher"
        languages = self.translator.languages
        is_reversed = languages == data.splits.languages[::-1] != data.splits.languages
        theirs = self.translator.tokenizer
        ours = data.tokenizer
        columns = (
            f"the teacher reads {theirs.columns.described}, but the student reads "
            f"{ours.columns.described}"
        )
        joint = "requires a shared vocabulary, but the teacher has separate vocabularies; set {}"
        reader = str(network.encoder.reader)  # models without images all give "None"
        readers = [str(teacher.encoder.reader) for teacher in self.translator.models]
        refuse(
            broken(
                (
                    is_reversed,
                    key,
                    f"the teacher translates from {' to '.join(languages)}, opposite to the "
                    "student",
                    self.paths,
                ),
                (
                    (theirs.models, theirs.lowercase) != (ours.models, ours.lowercase),
                    key,
                    "the teacher must have the same vocabulary as the student",
                    self.paths,
                ),
                (theirs.columns != ours.columns, key, columns, self.paths),
                *(
                    (not ours.joint, needing, joint.format(instead))
                    for needing, instead in Seq2Seq.needs_joint(settings.model).items()
                ),
                *(
                    (
                        of_teacher != reader,
                        key,
                        f"the teacher reads images as {of_teacher}, but the student as {reader}",
                        path,
                    )
                    for of_teacher, path in zip(readers, self.paths, strict=True)
                ),
            )
        )


def build_objective(
    settings: TrainSettings,
    trained: Checkpoint | None,
    teachers: Teachers | None,
    data: PreparedData,
    metric: Metric,
) -> Any:
    """Builds the training objective.

    The constructor of the objective receives the teachers in its parameter `teachers`, and a
    function that generates candidate translations in its parameter `candidate_generator`, if it has
    these parameters.
    """
    supplied: dict[str, Any] = {}
    if teachers is not None:
        supplied["teachers"] = teachers.translator.models
    if "candidate_generator" in _arguments(settings.values):
        if trained is None:
            log.warning(
                "objective: this objective learns from the model's own translations, which "
                "are random before training; train with objective=cross_entropy first, then "
                "set init=RUN_DIR"
            )
        supplied["candidate_generator"] = Candidates(
            data.tokenizer.decode,
            max_length_factor=settings.translation["max_length_factor"],
            max_length_offset=settings.translation["max_length_offset"],
            metric_settings=metric.options,
        )
    return components.make(settings.values, "objective", **supplied)


def _arguments(config: components.Config) -> Mapping[str, Any]:
    """Returns the names of the constructor parameters of the configured objective."""
    return inspect.signature(components.class_of("objective", config["objective"])).parameters
