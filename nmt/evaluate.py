"""python -m nmt.evaluate model=RUN_DIR source=FILE reference=FILE

Translates the source and scores the translations against one reference, or several with
reference=[FILE,FILE]. The scores are exact match, and BLEU, chrF and TER with their sacreBLEU
signatures. Image captions are also scored by BLEU-1 to BLEU-3. In Python, the module can be called
as a function:
nmt.evaluate("RUN_DIR", dataset, source="en", reference="de").
"""

from nmt.configuration.command_line import command

run, main = command(
    "evaluate",
    "nmt.pipeline.model_commands:evaluate",
    python="nmt.pipeline.python_functions:evaluate",
)

if __name__ == "__main__":
    main()
