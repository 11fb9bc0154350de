"""python -m nmt.classify data.train=FILE data.validation=FILE data.text=text data.label=label
python -m nmt.classify resume=RUN_DIR                       continues a run

Trains a text classifier; conf/classify.yaml lists the keys. The command
`python -m nmt.label model=RUN_DIR` labels texts with the classifier.
"""

from nmt.configuration.command_line import command

run, main = command(
    "classify",
    "nmt.pipeline.run_training:train",
    sweep="nmt.pipeline.sweep_command:sweep",
    instead={"model": "label"},
)

if __name__ == "__main__":
    main()
