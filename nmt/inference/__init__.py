"""Inference with trained networks: translation, classification, scoring and word alignment of text.

Modules in reading order: translation, model_step, networks, forced_decoder, translator, then the
others in any order.
"""

from nmt.foundation.part_limits import PartGroup

GROUPS = {
    "translation": PartGroup(
        "nmt.inference.translator.Translator",
        ("precision", "averaging", "shares", "languages", "lexicon"),
    ),
}
"""Maps the name of the configuration group `translation` to its class, and to the constructor
arguments that are not configuration keys."""
