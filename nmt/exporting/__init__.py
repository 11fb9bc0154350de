"""Trained models in forms that others read: ONNX graphs, one HTML file, folders for the HuggingFace hub.

Imported by: export.
Read: onnx, translate_onnx, html, card.
"""
