"""python -m nmt.align model=RUN_DIR source=FILE target=FILE [reverse=RUN_DIR] [gold=FILE] …

Word alignments of given sentence pairs, one line per pair. Each target word is linked to the
source word that it attends to most. With reverse=, a model of the other direction, the alignments
of both directions are combined. With vectors=[SOURCE,TARGET], two files of word vectors in one
space, no trained model is needed. With method=ibm1 or method=hmm, a word aligner is trained on the
pairs (and those of train=), in both directions. attention_map= draws the weights.
"""

from nmt.configuration.command_line import command

run, main = command("align", "nmt.pipeline.model_commands:align")

if __name__ == "__main__":
    main()
