"""Native kernels: the element-wise work of training in C++, where a compiler is present.

PyTorch computes it operation by operation, each of which reads and writes all of its tensors. A kernel does all
operations of a row while the row is in the processor's cache. Its backward pass computes cheap values again
instead of keeping them. Matrix products stay with PyTorch. Every kernel has a counterpart in plain PyTorch: it
shows the equations, runs where the kernel cannot, and is the reference of tests/test_native.py.

    attention.cpp        scores, softmax and weighted sum of a step    model/attention, decoder/attention_step.py
    gru.cpp              gates of the gated recurrent unit             layers/cells/gru.py
    cross_entropy.cpp    loss and gradient of rows of logits           layers/fused_cross_entropy.py
    beam_search.cpp      a whole search of Luong's decoder             inference/whole_search.py, search/
    decoding.cpp         steps of a search                             attention/, layers/packed.py, search/top_k.py

The kernels are compiled on first use. NMT_NATIVE=0 in the environment switches them off.

Read: this file, kernel_library, native_functions, native_decoding.
"""
