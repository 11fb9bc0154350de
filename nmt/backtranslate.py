"""python -m nmt.backtranslate synthetic.text=FILE run_dir=OUT [key=value …]

Translates monolingual text back to the source language, and trains a model on the original and the
synthetic sentence pairs. Keys are listed in conf/backtranslate.yaml; all keys of nmt.train are
accepted too. The same command resumes an interrupted run.
"""

from nmt.configuration.command_line import command

run, main = command("backtranslate", "nmt.pipeline.backtranslation.steps:backtranslate", sweep=None)

if __name__ == "__main__":
    main()
