"""python -m nmt.export model=RUN_DIR format=onnx output=FOLDER

format=onnx: ONNX graphs, with an example that translates without nmt or PyTorch. format=card: a
folder with the weights, the tokenizer and a model card, as the Hugging Face hub takes it.
format=html: one page that translates in a browser.
"""

from nmt.configuration.command_line import command

run, main = command("export", "nmt.pipeline.model_commands:export")

if __name__ == "__main__":
    main()
