"""python -m nmt.score model=RUN_DIR source=FILE target=FILE [output=FILE] [format=jsonl] …

The probability of given translations under the model: one natural-log probability per line (</s>
included), perplexity on stderr. With nbest=FILE (Moses format) instead of target=FILE, the
hypotheses of an n-best list are scored again.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.model_commands:score")
main = command_line("score", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
