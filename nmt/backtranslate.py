"""python -m nmt.backtranslate synthetic.text=FILE run_dir=OUT [what nmt.train takes]      see conf/backtranslate.yaml

More training pairs from text of one language, and a model trained on all of them. The same command goes on where it stopped.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.backtranslation:backtranslate")
main = command_line("backtranslate", run)

if __name__ == "__main__":
    main()
