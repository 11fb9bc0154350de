"""Inference with trained networks: translation, classification, scoring and word alignment of text.

Reading order: translation, model_step, networks, translator, the rest in any order.
"""

from nmt.foundation.part_limits import PartGroup

GROUPS = {
    "translation": PartGroup(
        "nmt.inference.translator.Translator",
        ("precision", "averaging", "shares", "languages", "lexicon"),
    ),
}
"""Maps the name of the configuration group `translation` to its class and supplied arguments."""
