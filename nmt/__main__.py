"""python -m nmt: list of the commands."""

COMMANDS = {
    "train": "trains a translation model; -m trains a sweep",
    "classify": "trains a text classifier",
    "backtranslate": "trains with translations of text in the target language alone",
    "translate": "translates lines",
    "evaluate": "scores the translations of a model",
    "score": "log-probabilities of given translations",
    "align": "word alignments from attention",
    "label": "classes of lines",
    "average": "mean of the weights of several checkpoints",
    "serve": "HTTP server, and a page that explains translations",
    "export": "ONNX, a page without a server, a hub folder",
    "index": "memory of translations for the server",
    "report": "tables and tests over runs",
    "compare": "comparison of the translations of two or more systems",
    "check_attention": "the laws of attention that a function or module breaks",
    "cite": "BibTeX of the papers that a model uses",
}
"""Purpose of each command."""


def main() -> None:
    """Prints all commands."""
    for name, purpose in COMMANDS.items():
        print(f"  python -m nmt.{name:<16}{purpose}")
    print(
        "\n--help after a command shows its choices and keys, --help WORD those that contain a "
        "word."
    )


if __name__ == "__main__":
    main()
