"""SentencePiece models as data: what kind they are, their special symbols, more pieces."""

from typing import Any

from nmt.foundation.interfaces import BOS, EOS, PAD, UNK


def parsed(model: bytes) -> Any:
    """A SentencePiece model as a protocol buffer."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(model)
    return proto


def kind(model: bytes) -> str:
    """unigram, bpe, char or word."""
    spec = parsed(model).trainer_spec
    return str(spec.ModelType.Name(spec.model_type)).lower()


def with_our_ids(model: bytes) -> bytes:
    """A model whose first pieces are PAD, UNK, BOS and EOS, in this order; the others stay in theirs. Raises
    ValueError if it is none."""
    proto = parsed(model)
    spec, names = proto.trainer_spec, [piece.piece for piece in proto.pieces]
    unknown = [piece for piece in proto.pieces if piece.type == piece.UNKNOWN]
    if len(unknown) != 1 or len(set(names)) != len(names):
        raise ValueError("no SentencePiece model")
    symbols = {
        PAD: spec.pad_piece or "<pad>",
        UNK: "",
        BOS: spec.bos_piece or "<s>",
        EOS: spec.eos_piece or "</s>",
    }
    special = []
    for number in sorted(symbols):
        piece = type(unknown[0])()
        if number == UNK:
            piece.CopyFrom(unknown[0])
        else:
            piece.piece, piece.score, piece.type = symbols[number], 0.0, piece.CONTROL
        special.append(piece)
    taken = {piece.piece for piece in special}
    pieces = [*special, *(piece for piece in proto.pieces if piece.piece not in taken)]
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id, spec.vocab_size = (
        PAD,
        UNK,
        BOS,
        EOS,
        len(pieces),
    )
    return proto.SerializeToString()


def with_pieces_of(model: bytes, other: bytes) -> bytes:
    """A model with more pieces at its end. Pieces of unigram keep their scores; merges of BPE come after all others."""
    proto, merges = parsed(model), kind(model) == "bpe"
    known, lowest = (
        {piece.piece for piece in proto.pieces},
        min(piece.score for piece in proto.pieces),
    )
    for piece in parsed(other).pieces:
        if piece.piece not in known and piece.type == piece.NORMAL:
            lowest -= 1
            added = proto.pieces.add()
            added.CopyFrom(piece)
            added.score = lowest if merges else piece.score
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString()
