"""python -m nmt.compare reference=FILE source=FILE A B …

What translations of the same text have in common and in what they differ. A, B: run directories, models, or files that any
system has written. Tables on the terminal, and NAME.md, NAME.json and a page NAME.html.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.model_commands:compare")
main = command_line("compare", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
