"""python -m nmt.backtranslate synthetic.text=FILE run_dir=OUT [key=value …]

Makes training pairs from text of one language, and trains a model on all pairs. Other keys are
those of nmt.train; see conf/backtranslate.yaml. The same command continues where it stopped.
"""

from nmt.configuration.command_line import command

run, main = command("backtranslate", "nmt.pipeline.backtranslation:backtranslate", sweep=None)

if __name__ == "__main__":
    main()
