"""python -m nmt.export model=RUN_DIR format=onnx output=FOLDER

Exports a model. format=onnx writes ONNX graphs, with an example script that needs neither nmt nor
PyTorch. format=card writes a folder for the Hugging Face Hub with weights, tokenizer and model
card. format=html writes an HTML file that translates in a browser.
"""

from nmt.configuration.command_line import command

run, main = command("export", "nmt.pipeline.model_commands:export")

if __name__ == "__main__":
    main()
