"""The command lines' common ground: where the configuration is, and how its faults and a run's are told to people."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UserError

_here = Path(__file__).resolve().parent
CONF = str(_here / "conf" if (_here / "conf").is_dir() else _here.parent / "conf")
"""conf/ lies inside the package when installed, beside it in a checkout."""


def command_line(
    config_name: str, check: Callable[[dict[str, Any]], None], run: Callable[[dict[str, Any]], Any]
) -> Callable[[], Any]:
    """A `main` that composes conf/{config_name}.yaml with the command line, and calls `check(config)`, `run(config)`.

    Faults of the user are printed without a traceback; exit status 1, or 130 if interrupted.
    """

    def main() -> Any:
        import hydra

        failures: list[str] = []
        compatible: dict[str, Any] = {"version_base": "1.3"}
        if "execution_whitelist" in inspect.signature(hydra.main).parameters:  # Hydra ≥ 1.4
            compatible = {"execution_whitelist": ("nmt.*",)}

        @hydra.main(config_path=CONF, config_name=config_name, **compatible)
        def task(config: Any) -> Any:
            from hydra.core.hydra_config import HydraConfig
            from hydra.types import RunMode

            def checked() -> Any:
                plain = _resolved(config)
                check(plain)
                return run(plain)

            if HydraConfig.get().mode != RunMode.MULTIRUN:
                return friendly(checked)
            try:  # one bad run must not end a sweep
                return checked()
            except UserError as error:
                _tell(error)
                failures.append(str(error))
                return float("nan")

        arguments, result = sys.argv[1:], None
        flags = [argument for argument in arguments if argument.startswith("-")]
        rest = [argument for argument in arguments if not argument.startswith("-")]
        grids = friendly(lambda: check_command_line(config_name, arguments, check))
        for grid in filter(None, grids):
            friendly(partial(check_command_line, config_name, [*grid, *rest], check))
        for grid in grids:
            sys.argv[1:] = [*flags, *grid, *rest] if grid else arguments
            result = task()
        if failures:
            raise SystemExit(1)
        return result

    return main


def friendly(action: Callable[[], Any]) -> Any:
    """Does something; a UserError becomes a message on stderr and exit status 1."""
    try:
        return action()
    except UserError as error:
        _tell(error)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None


def _tell(error: UserError) -> None:
    logger = logging.getLogger("nmt")
    if logger.handlers:
        logger.error("%s", error)
    else:
        print(f"error: {error}", file=sys.stderr)


def _resolved(config: Any) -> dict[str, Any]:
    """An OmegaConf config as plain containers. Raises UserError if a ${reference} in it leads nowhere."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=False)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None)
        raise UserError(f"{key or 'the configuration'}: {str(error).splitlines()[0]}") from error


def check_command_line(
    config_name: str, arguments: Sequence[str], check: Callable[[dict[str, Any]], None] = lambda _: None
) -> list[list[str]]:
    """What to add to the command line, once for every task: nothing, or for a sweep (-m) each of the configuration's
    `grids`. Raises UserError listing every override that does not fit, and what else is wrong with the configuration."""
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    if any(argument.startswith("-") and argument not in ("-m", "--multirun") for argument in arguments):
        return [[]]  # --help, --cfg, --config-dir …: Hydra's own business
    sweeps = len(overrides) < len(arguments)
    if not overrides:
        return [[]]
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    found: list[str] = []
    with initialize_config_dir(CONF, version_base="1.3"):
        variants = [variant for text in overrides for variant in _variants(text, found)]
        last = {variant.split("=", 1)[0]: variant for variant in variants}
        if not found:
            try:
                composed = compose(config_name, overrides=list(last.values()))
                grids = [text.split() for text in composed.get("grids") or [""]] if sweeps else [[]]
                if len(last) == len(variants):
                    return grids
            except (HydraException, OmegaConfBaseException):
                pass
        good: dict[str, str] = {}
        # Choices before values: they decide which keys exist.
        for text in sorted(variants, key=lambda variant: "." in variant.split("=", 1)[0]):
            try:
                compose(config_name, overrides=[*good.values(), text])
                good[text.split("=", 1)[0]] = text
            except (HydraException, OmegaConfBaseException) as error:
                known: Any = OmegaConf.to_container(compose(config_name, overrides=list(good.values())), resolve=False)
                found.append(_explain(text, error, known))
        if found:
            try:
                rest = compose(config_name, overrides=list(good.values()))
                OmegaConf.set_struct(rest, False)
                rest.pop("hydra", None)
                check(_resolved(rest))
            except UserError as error:
                found += [line.removeprefix("  - ") for line in str(error).splitlines()[1:]]
    if found:
        raise UserError("the configuration has faults:\n" + "\n".join(f"  - {fault}" for fault in found))
    return grids


def _variants(override: str, found: list[str]) -> list[str]:
    """An override as one key=value for every value it sweeps over; a fault in its form is added to `found`."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        [parsed] = OverridesParser.create(GlobalHydra.instance().config_loader()).parse_overrides([override])
    except HydraException:
        quotes = ". Put values with , ( ) = or ' between quotes twice: key='\"a, b\"'" if "=" in override else ""
        found.append(f"{override}: not of the form key=value{quotes}")
        return []
    if not parsed.is_sweep_override():
        return [override]
    return [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]


def _explain(override: str, error: Exception, config: Mapping[str, Any]) -> str:
    from nmt.configuration.check import unknown

    key, _, value = override.partition("=")
    message = str(error)
    if "Could not find" in message and "Available options" in message:
        options = message.split("Available options in")[1].split(":", 1)[1].split("Config search path")[0].split()
        return f"{override}: there is no {value!r} to choose for {key} (there are: {', '.join(options)})"
    if "is not in struct" in message or "Could not override" in message or "No match" in message:
        *parents, last = key.lstrip("+~").split(".")
        node: Any = config
        for parent in parents:
            if not isinstance(node, Mapping) or parent not in node:
                return unknown(key, parent, list(node) if isinstance(node, Mapping) else [])
            node = node[parent]
        return unknown(key, last, [k for k in node if k != "_target_"] if isinstance(node, Mapping) else [])
    return f"{override}: {message.splitlines()[0]}"
