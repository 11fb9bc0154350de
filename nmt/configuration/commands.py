"""Settings class of each command."""

from nmt.configuration.model_settings import (
    AlignSettings,
    AverageSettings,
    CheckAttentionSettings,
    CiteSettings,
    CompareSettings,
    EvaluateSettings,
    ExportSettings,
    IndexSettings,
    LabelSettings,
    ReportSettings,
    ScoreSettings,
    ServeSettings,
    TranslateSettings,
)
from nmt.configuration.settings import Settings
from nmt.configuration.training_settings import (
    BacktranslateSettings,
    ClassifySettings,
    TrainSettings,
)

COMMANDS: dict[str, type[Settings]] = {
    "train": TrainSettings,
    "classify": ClassifySettings,
    "backtranslate": BacktranslateSettings,
    "translate": TranslateSettings,
    "evaluate": EvaluateSettings,
    "score": ScoreSettings,
    "align": AlignSettings,
    "label": LabelSettings,
    "average": AverageSettings,
    "serve": ServeSettings,
    "export": ExportSettings,
    "index": IndexSettings,
    "check_attention": CheckAttentionSettings,
    "cite": CiteSettings,
    "report": ReportSettings,
    "compare": CompareSettings,
}
"""Settings class of each command, by the name of the command."""
