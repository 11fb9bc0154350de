"""python -m nmt.evaluate model=RUN_DIR source=FILE reference=FILE

Translates the source and compares with the reference, or with several, reference=[FILE,FILE]:
BLEU, chrF, TER and exact match with sacreBLEU's signatures; for captions of pictures also BLEU-1
to 3. In Python, the module is a function too:
nmt.evaluate("RUN_DIR", dataset, source="en", reference="de").
"""

from nmt.configuration.command_line import command

run, main = command(
    "evaluate",
    "nmt.pipeline.model_commands:evaluate",
    python="nmt.pipeline.python_evaluation:evaluate",
)

if __name__ == "__main__":
    main()
