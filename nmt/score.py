"""python -m nmt.score model=RUN_DIR source=FILE target=FILE [output=FILE] [format=jsonl] …

Computes the natural logarithm of the probability that the model assigns to each given translation
including </s>. The output has one value per line. The perplexity is printed to stderr. nbest=FILE
instead of target=FILE reads the translations from an n-best list in Moses format.
"""

from nmt.configuration.command_line import command

run, main = command("score", "nmt.pipeline.model_commands:score")

if __name__ == "__main__":
    main()
