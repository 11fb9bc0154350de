"""python -m nmt.align model=RUN_DIR source=FILE target=FILE [reverse=RUN_DIR] [gold=FILE] …

Computes word alignments of given sentence pairs, one output line per pair. Each target word is
linked to the source word with the greatest attention weight. With reverse=, a model of the opposite
direction, the alignments of both directions are combined. vectors=[SOURCE,TARGET] uses two files of
word vectors in a common space instead of a model. method=ibm1 and method=hmm train a word aligner
on the sentence pairs and those of train=, in both directions. attention_map= writes a drawing of
the weights.
"""

from nmt.configuration.command_line import command

run, main = command("align", "nmt.pipeline.model_commands:align")

if __name__ == "__main__":
    main()
