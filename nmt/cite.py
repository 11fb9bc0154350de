"""python -m nmt.cite [model=RUN_DIR]

BibTeX of the papers that nmt implements, or of those that a model's parts and settings come from.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.analysis.citations:print_papers", "model")
main = command_line("cite", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
