"""Errors for unknown keys and choices, with suggestions of similar names."""

import difflib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from nmt.foundation.part_limits import ConfigError, shown
from nmt.foundation.synonyms import CHOICE_SYNONYMS, SYNONYMS

SIMILARITY = 0.6
"""Minimum similarity of a suggested name, 0 to 1 (difflib)."""
MOST = 3
"""Maximum number of suggestions for an unknown name."""


def unknown(key: str, known: Collection[str], everywhere: Collection[str] = ()) -> ConfigError:
    """Returns the error for an unknown key.

    key: dotted key, whose last component is unknown
    known: valid names in the same group
    everywhere: all dotted keys of the configuration, for suggestions from other groups
    """
    if not known and not everywhere:
        return ConfigError(
            key,
            "key not found, because this choice has no settings. Leave it out, or set _target_ "
            "in your YAML file to a class that has this parameter",
        )
    others = [name for name in everywhere if name != key]
    nearest = near_matches(key.rpartition(".")[2], known, others)
    return ConfigError(key, "key not found", choices=tuple(sorted(known)), nearest=nearest)


def unknown_keys(
    key: str, value: Any, known: Collection[str], everywhere: Collection[str]
) -> Iterator[ConfigError]:
    """Yields the errors for an unknown key.

    Usually, there is a single error, which names the key. If the key is a group of another toolkit
    whose keys have counterparts in nmt, such as training.batch_size, there is instead an error for
    each of these keys.

    key: dotted key, whose last component is unknown
    value: value of the key
    known: valid names in the same group
    everywhere: all dotted keys of the configuration, for suggestions from other groups
    """
    is_typo = difflib.get_close_matches(key.rpartition(".")[2], known, 1, 0.8)
    inner_keys = value if isinstance(value, dict) and not is_typo else ()
    elsewhere = {name for name in everywhere if not name.startswith(f"{key}.")}
    translated = [name for name in inner_keys if elsewhere.intersection(SYNONYMS.get(name, ()))]
    for name in translated:
        yield unknown(f"{key}.{name}", (), everywhere)
    if not translated:
        yield unknown(key, known, everywhere)


def not_a_choice(
    group: str,
    value: Any,
    choices: Sequence[str],
    elsewhere: Sequence[str] = (),
    folders: Sequence[str] = (),
) -> ConfigError:
    """Returns the error for an unknown choice of a group.

    group: name of the configuration group, such as decoder
    value: the unknown choice
    choices: valid choices of the group
    elsewhere: other groups that have this choice
    folders: folders of additional choices, which do not have this choice
    """
    if value is None:
        return ConfigError(group, "must have a choice", "null", tuple(choices))
    problem = "unknown choice"
    name = str(value).lower()
    translated = CHOICE_SYNONYMS.get(name, "")
    nearest = () if elsewhere else near_matches(name, choices)
    if translated in choices or "=" in translated:
        nearest = (translated,)
    if not nearest:
        question = f"did you mean {elsewhere[0]}={value}, or is" if elsewhere else "is"
        problem += f"; {question} --plugins PACKAGE or --config-dir FOLDER missing?"
    if folders:
        problem += f"; no file {group}/{value}.yaml in {', '.join(folders)}"
    return ConfigError(group, problem, shown(value), tuple(choices), nearest)


def near_matches(
    name: str, known: Collection[str], everywhere: Collection[str] = ()
) -> tuple[str, ...]:
    """Returns suggestions for an unknown name.

    name: last component of the unknown key
    known: valid names in the same group
    everywhere: all dotted keys; the suggestions are keys that have this name in other toolkits, and
        keys whose last component is the name or a similar name
    """
    # Only synonyms of existing keys and groups are suggested.
    present = {*known, *everywhere, *(key.partition(".")[0] for key in everywhere)}
    translated = [key for key in SYNONYMS.get(name, ()) if key in present]
    if translated and name not in known:
        return tuple(translated[:MOST])
    # Suggests the same name in another group, such as optimizer.lr for lr.
    endings = dict.fromkeys(key.rpartition(".")[2] for key in everywhere)
    similar = difflib.get_close_matches(name, known, 1, SIMILARITY)
    if not similar or name in endings:
        nearest = difflib.get_close_matches(name, endings, 1, SIMILARITY)
        similar = [key for key in everywhere if key.rpartition(".")[2] in nearest]
    return tuple(similar[:MOST])
