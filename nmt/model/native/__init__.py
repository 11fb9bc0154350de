"""C++ extension: element-wise operations of training and steps of a search, compiled on first use.

PyTorch runs element-wise work as separate operations, each of which reads and writes whole
tensors. A C++ function applies all operations to a row while the row is in the processor's cache.
Its backward pass recomputes cheap values instead of storing them. In training, PyTorch still does
the matrix multiplications.

Every C++ function has an equivalent in plain PyTorch. The equivalent shows the equations, serves as
the reference in tests/test_native.py, and runs where the extension is not available.

    attention.cpp       scores, softmax and weighted sum    attention/, decoder/attention_step.py
    gru.cpp             gates of the gated recurrent unit   layers/cells/gru.py
    cross_entropy.cpp   loss and gradient of logits         layers/fused_cross_entropy.py
    beam_search.cpp     whole searches                      inference/model_step.py, search/
    decoding.cpp        operations of a search step         attention/, layers/packed.py, search/
    float32_product.cpp, int8_product.cpp
                        products of a search                layers/packed.py

NMT_NATIVE=0 in the environment disables the extension.

Modules in reading order: this file, kernel_library, native_functions, native_decoding.
"""
