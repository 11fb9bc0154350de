"""python -m nmt.compare reference=FILE source=FILE A B …

Common features and differences of translations of the same text. A, B: run directories, models,
or files that any system has written. Prints tables, and writes NAME.md, NAME.json and a page
NAME.html.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.model_commands:compare")
main = command_line("compare", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
