"""python -m nmt.align model=RUN_DIR source=FILE target=FILE [reverse=RUN_DIR] [gold=FILE] …

Computes word alignments of given sentence pairs, one output line per pair. Each target word is
linked to the source word with the greatest attention weight. reverse= names a model of the opposite
direction; the alignments of both directions are then combined. vectors=[SOURCE,TARGET] uses two
files of word vectors in a common space instead of a model. method=ibm1 and method=hmm train a word
aligner in each direction on the given sentence pairs and on further pairs in train=. attention_map=
writes a plot of the attention weights.
"""

from nmt.configuration.command_line import command

run, main = command("align", "nmt.pipeline.model_commands:align")

if __name__ == "__main__":
    main()
