"""Trained models in forms that others read: ONNX graphs, folders for the HuggingFace hub.

Imported by: export.
Read: onnx, translate_onnx, card.
"""
