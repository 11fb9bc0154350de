"""Reads and edits serialised SentencePiece models: algorithm, special symbols, added subwords."""

from typing import Any

from nmt.foundation.interfaces import BOS, EOS, PAD, UNK


def parsed(model: bytes) -> Any:
    """Parses a serialised SentencePiece model into a protocol buffer."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(model)
    return proto


def kind(model: bytes) -> str:
    """Returns the algorithm of a SentencePiece model: unigram, bpe, char or word."""
    spec = parsed(model).trainer_spec
    return str(spec.ModelType.Name(spec.model_type)).lower()


def can_be_sampled(model: bytes) -> bool:
    """Returns whether nmt can sample segmentations of a SentencePiece model: a unigram or BPE model
    whose subwords begin with the space and never contain other spaces, and which has no subwords
    of its user."""
    proto = parsed(model)
    spec = proto.trainer_spec
    has_user_pieces = any(piece.type == piece.USER_DEFINED for piece in proto.pieces)
    begins_with_spaces = spec.split_by_whitespace and not spec.treat_whitespace_as_suffix
    return kind(model) in ("unigram", "bpe") and begins_with_spaces and not has_user_pieces


def with_our_ids(model: bytes) -> bytes:
    """Returns the model with PAD, UNK, BOS and EOS as its first symbols; all other subwords keep
    their order.

    Raises ValueError if `model` is not a SentencePiece model.
    """
    proto = parsed(model)
    spec = proto.trainer_spec
    unknown = [piece for piece in proto.pieces if piece.type == piece.UNKNOWN]
    if len(unknown) != 1 or len({piece.piece for piece in proto.pieces}) != len(proto.pieces):
        raise ValueError("not a SentencePiece model")
    symbols = (spec.pad_piece or "<pad>", spec.bos_piece or "<s>", spec.eos_piece or "</s>")
    new_piece = type(unknown[0])
    pad, bos, eos = (new_piece(piece=s, score=0.0, type=new_piece.CONTROL) for s in symbols)
    special = [pad, unknown[0], bos, eos]  # special symbols in the order of their ids
    names = {piece.piece for piece in special}
    pieces = [*special, *(piece for piece in proto.pieces if piece.piece not in names)]
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    ids = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
    # Decoded text contains SentencePiece's default mark ⁇ for each unknown word.
    spec.MergeFrom(type(spec)(vocab_size=len(pieces), unk_surface=" ⁇ ", **ids))
    return proto.SerializeToString()


def with_pieces_of(model: bytes, other: bytes) -> bytes:
    """Returns a SentencePiece model, extended by the new subwords of another model.

    Subwords of unigram models keep their scores; merges of BPE models rank after all merges of
    `model`.

    model: serialised model to extend
    other: serialised model with the new subwords
    """
    proto = parsed(model)
    merges = kind(model) == "bpe"
    names = {piece.piece for piece in proto.pieces}
    lowest = min(piece.score for piece in proto.pieces)
    for piece in parsed(other).pieces:
        if piece.piece not in names and piece.type == piece.NORMAL:
            lowest -= 1
            # SentencePiece applies BPE merges in descending order of their scores.
            proto.pieces.add().CopyFrom(piece)
            proto.pieces[-1].score = lowest if merges else piece.score
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString()
