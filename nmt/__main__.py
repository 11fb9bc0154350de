"""Prints the list of all commands: python -m nmt."""

import sys

from nmt.foundation.command_exit import with_exit_status

COMMANDS = {
    "train": "trains a translation model; -m trains a sweep",
    "classify": "trains a text classifier",
    "backtranslate": "trains a model with back-translated monolingual text",
    "translate": "translates the lines of a file",
    "evaluate": "translates a test set and computes BLEU, chrF and other scores",
    "score": "computes log-probabilities of given translations",
    "align": "computes word alignments of sentence pairs",
    "label": "labels the lines of a file with a text classifier",
    "average": "averages the weights of several checkpoints",
    "serve": "starts an HTTP server with a web page that explains translations",
    "export": "exports a model as ONNX, HTML page or Hugging Face folder",
    "index": "creates an index of similar training sentences for nmt.serve",
    "report": "compares training runs in tables, with significance tests",
    "compare": "compares the translations of two or more systems",
    "check_attention": "tests whether a custom attention function is correct",
    "cite": "prints the BibTeX entries of the papers behind a model",
}
"""Purpose of each command, by command name, as printed by `python -m nmt`."""


def main() -> None:
    """Prints all commands with their purposes.

    Raises SystemExit if a command is given as an argument, as in `python -m nmt train`.
    """
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        name = sys.argv[1]
        problem = f"{name} is not a command; python -m nmt lists all commands"
        if name in COMMANDS:
            problem = f"commands are modules; write python -m nmt.{name} …"
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(2)
    for name, purpose in COMMANDS.items():
        print(f"  python -m nmt.{name:<16}{purpose}")
    print(
        "\nAfter a command, --help lists its choices and keys, and --help WORD only those that "
        "contain WORD."
    )


if __name__ == "__main__":
    with_exit_status(main)
