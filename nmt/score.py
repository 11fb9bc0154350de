"""python -m nmt.score model=RUN_DIR source=FILE target=FILE [output=FILE] [format=jsonl] …

The probability of given translations under the model: one natural-log probability per line (</s>
included), perplexity on stderr. With nbest=FILE (Moses format) instead of target=FILE, the
hypotheses of an n-best list are scored again.
"""

from nmt.configuration.command_line import command

run, main = command("score", "nmt.pipeline.model_commands:score")

if __name__ == "__main__":
    main()
