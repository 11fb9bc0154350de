"""python -m nmt.score model=RUN_DIR source=FILE target=FILE [output=FILE] [format=jsonl] …

Computes the natural-log probability of each given translation under the model, </s> included, one
value per line. The perplexity is printed to stderr. With nbest=FILE instead of target=FILE, scores
the hypotheses of an n-best list in Moses format.
"""

from nmt.configuration.command_line import command

run, main = command("score", "nmt.pipeline.model_commands:score")

if __name__ == "__main__":
    main()
