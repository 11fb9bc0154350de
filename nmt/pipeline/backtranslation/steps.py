"""Runs the steps of back-translation; a finished step is not repeated."""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nmt import components
from nmt.configuration.previous_runs import changed, saved_run
from nmt.configuration.training_settings import BacktranslateSettings, TrainSettings
from nmt.data import as_list
from nmt.data.lines import find_file
from nmt.data.synthetic import Synthetic
from nmt.foundation.configurations import NOT_LEARNT, NOT_LEARNT_BY_TRAINER, flat
from nmt.foundation.devices import find_device
from nmt.foundation.errors import Stopped, UsageError
from nmt.foundation.part_limits import refuse
from nmt.foundation.ranks import Ranks
from nmt.foundation.terminal import set_up_logging
from nmt.foundation.torchrun import AGAIN, together
from nmt.pipeline.assembly.run_parts import trackers_of
from nmt.pipeline.assembly.translation_parts import check_new_training
from nmt.pipeline.backtranslation.real_pairs import write_real_pairs
from nmt.pipeline.backtranslation.step_settings import (
    StepSettings,
    TextTranslation,
    languages_of,
)
from nmt.pipeline.backtranslation.synthetic_pairs import write_synthetic_pairs
from nmt.pipeline.model_commands import translate
from nmt.pipeline.resumed_training import final_score
from nmt.pipeline.run_training import is_tested, train
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import LOCK, read_json_object
from nmt.storage.lock import Lock

log = logging.getLogger(__name__)


def backtranslate(settings: BacktranslateSettings) -> float:
    """Runs all unfinished steps of a back-translation, and returns the test score of the final
    model.

    Raises UserError if the text, the folder or a model cannot be used.
    """
    synthetic: Synthetic = components.make(settings.values, "synthetic")
    trackers_of(settings.values)  # raises UserError before the text is read
    check_new_training(settings)
    if synthetic.text is not None:
        find_file(synthetic.text, f"synthetic.text={synthetic.text}")
    if synthetic.model is not None:
        _check_direction(settings, synthetic)
    folder = Path(str(settings.run_dir))
    with together(find_device(settings.device).type == "cuda", AGAIN) as ranks:
        ranks.agree("configuration", flat(settings.values), "start all ranks with the same command")
        with Lock(folder / LOCK, f"run_dir={folder}") if ranks.first else contextlib.nullcontext():
            try:
                corpus = ranks.on_first(partial(write_real_pairs, settings, synthetic, folder))
                plan = StepSettings(settings, synthetic, folder, corpus)
                return Backtranslation(plan, ranks).run()
            except (KeyboardInterrupt, Stopped):
                log.warning(
                    "back-translation stopped; the same nmt.backtranslate command continues all "
                    "steps, including an interrupted training run"
                )
                raise


def _check_direction(settings: BacktranslateSettings, synthetic: Synthetic) -> None:
    """Raises UserError if a model in synthetic.model cannot be read or has the wrong direction."""
    sources = "+".join(as_list(settings.data.get("source")))
    languages = sources, str(settings.data.get("target"))
    needed = languages if synthetic.direction == "forward" else languages[::-1]
    paths = as_list(synthetic.model)
    directions = {languages_of(path) for path in paths}
    if synthetic.direction == "both" and len(directions) == 1:
        names = " to ".join(directions.pop())
        raise UsageError(
            f"synthetic.model: all models translate from {names}, but synthetic.direction=both "
            "needs models of both directions, trained with data.source and data.target exchanged"
        )
    for path in paths:
        learnt = languages_of(path)
        if synthetic.direction == "both":
            if len(set(languages)) < 2 or learnt not in (languages, languages[::-1]):
                raise UsageError(
                    f"synthetic.model={path}: translates from {' to '.join(learnt)}, but "
                    "synthetic.direction=both needs models between data.source and data.target, "
                    f"which are {' and '.join(map(str, languages))}"
                )
        elif len(set(languages)) == 2 and learnt == needed[::-1]:
            raise UsageError(
                f"synthetic.model={path}: translates from {learnt[0]} to {learnt[1]}, but "
                f"synthetic.direction={synthetic.direction} needs a "
                f"model from {needed[0]} to {needed[1]}"
            )


@dataclass(frozen=True)
class Backtranslation:
    """Steps 2 to 5 of back-translation: models that translate, translation, selection, final model.

    plan: settings of the steps
    ranks: processes (ranks) that share the work
    """

    plan: StepSettings
    ranks: Ranks

    def run(self) -> float:
        """Runs all unfinished steps of a back-translation, and returns the test score of the final
        model."""
        if not self._exists(self.plan.folder / "model" / "results.json"):
            for translator in self.plan.translators:
                if translator.seed is not None:
                    self._train_translator(translator)
            for translator in self.plan.translators:
                log.info("back-translation, step 3: writing translations to %s", translator.output)
                translate(self.plan.of_translation(translator))
            if self.ranks.first:
                write_synthetic_pairs(self.plan)
        return self._train_final()

    def _exists(self, file: Path) -> bool:
        """Waits until rank 0 reaches this call, and returns whether the file exists.

        file: file that only rank 0 writes, such as the results or the checkpoint of a run
        """
        return self.ranks.of_first(file.exists())

    def _train_translator(self, translator: TextTranslation) -> None:
        name = "source-to-target" if translator.direction == "forward" else "target-to-source"
        values = self.plan.of_translator(translator)
        self._train(Path(str(translator.folders)), values, f"step 2 ({name} model)")

    def _train(self, folder: Path, values: Mapping[str, Any], step: str) -> None:
        """Trains or resumes a run, unless the run is finished.

        folder: run folder
        values: settings of a new run
        step: number and name of the step, for a log message
        """
        if self._exists(folder / "results.json"):
            return
        log.info("back-translation, %s: training in the run folder %s", step, folder)
        if self._exists(folder / ckpt.LAST):
            run = saved_run(str(folder), "train")
            saved, errors = changed(run, "train", [])
            refuse(errors)
            # Keys without effect on the weights may change, but a planned stop is not repeated.
            free = {key: values[key] for key in NOT_LEARNT if key in values}
            of_trainer = values["trainer"].items()
            trainer = {key: value for key, value in of_trainer if key in NOT_LEARNT_BY_TRAINER}
            free["trainer"] = {**saved["trainer"], **trainer, "stop_after": 0}
            train(TrainSettings.of({**saved, **free, "resume": str(folder)}))
        else:
            train(TrainSettings.of({**values, "run_dir": str(folder), "resume": None}))
        set_up_logging()

    def _train_final(self) -> float:
        """Trains the final model on real and synthetic pairs, and returns its test score."""
        plan = self.plan
        folder = plan.folder / "model"
        values = plan.of_final_model()
        if plan.synthetic.direction == "both" and not self._exists(folder / "results.json"):
            values["trainer"] = self.ranks.on_first(plan.usual_trainer)
            values["final_test"] = is_tested(plan.settings)  # as without synthetic pairs
        self._train(folder, values, "step 5 (final model)")
        self.ranks.wait()  # rank 0 has written the results when it comes here
        results = read_json_object(folder / "results.json")
        name = plan.settings.metric["name"]
        score = final_score(results, name)
        log.info(
            "back-translation finished: %s %s %.2f; the model is in %s",
            results["part"],
            name,
            score,
            folder,
        )
        return score
