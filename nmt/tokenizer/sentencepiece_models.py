"""SentencePiece models as data: their kind, their special symbols, more pieces."""

from typing import Any

from nmt.foundation.interfaces import BOS, EOS, PAD, UNK


def parsed(model: bytes) -> Any:
    """A SentencePiece model as a protocol buffer."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(model)
    return proto


def kind(model: bytes) -> str:
    """Algorithm of a model: unigram, bpe, char or word."""
    spec = parsed(model).trainer_spec
    return str(spec.ModelType.Name(spec.model_type)).lower()


def with_our_ids(model: bytes) -> bytes:
    """A model whose first pieces are PAD, UNK, BOS and EOS; the other pieces keep their order.

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
    special = [pad, unknown[0], bos, eos]  # by id
    names = {piece.piece for piece in special}
    pieces = [*special, *(piece for piece in proto.pieces if piece.piece not in names)]
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    ids = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
    spec.MergeFrom(type(spec)(vocab_size=len(pieces), **ids))
    return proto.SerializeToString()


def with_pieces_of(model: bytes, other: bytes) -> bytes:
    """A model with the new pieces of another model at its end.

    Pieces of unigram keep their scores; the merges of BPE come after all those of `model`.
    """
    proto = parsed(model)
    merges = kind(model) == "bpe"
    names = {piece.piece for piece in proto.pieces}
    lowest = min(piece.score for piece in proto.pieces)
    for piece in parsed(other).pieces:
        if piece.piece not in names and piece.type == piece.NORMAL:
            lowest -= 1
            # SentencePiece merges pieces of a higher score first.
            proto.pieces.add().CopyFrom(piece)
            proto.pieces[-1].score = lowest if merges else piece.score
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString()
