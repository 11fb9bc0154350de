// Bidirectional layer of gated recurrent units, and a whole beam search with a one-layer GRU decoder of model/decoder:
// luong.py, luong_feed.py, bahdanau.py or conditional.py. search/breadth_first.py is the equivalent in Python.
//
// Dimensions: n rows, B sentences, S source positions, Q units, K features of a key, M features of a value, E of an
// embedding, D of a readout, V vocabulary size, W hypotheses per sentence.

#include <algorithm>
#include <set>
#include <vector>

#include "products.h"

extern "C" void search_attention(Index, Index, Index, const float*, Index, const float*, const bool*, const Index*,
                                 const float*, bool, float*);
extern "C" void search_weighted_sum(Index, Index, Index, const float*, const float*, const Index*, float*, Index);
extern "C" void search_best(Index, Index, Index, Index, const float*, float*, Index*, float*);

namespace {

// BLAS function gemm_bf16bf16f32 for bfloat16 matrices and a float32 result.
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const void*,
                      const int*, const void*, const int*, const float*, float*, const int*);

enum Precision : Index { FLOAT32, BFLOAT16, INT8 };

struct Layer {
    const void* weight;  // for FLOAT32 and INT8 in the layouts of float32_product.cpp and int8_product.cpp
    const float* bias;
    int inputs, outputs;
};

struct Multiply {
    Gemm gemm;  // for BFLOAT16
    Precision precision;
    std::vector<BFloat16> rounded;

    // Computes y = x Wᵀ + b [rows outputs].
    void operator()(int rows, const Layer& layer, const float* x, std::vector<float>& y) {
        const float one = 1;
        y.resize(size_t(rows) * layer.outputs);
        if (precision != BFLOAT16) {
            const auto function = precision == INT8 ? int8_product : float32_product;
            return function(rows, layer.inputs, layer.outputs, x, layer.weight, layer.bias, y.data());
        }
        for (int i = 0; i < rows; i++) std::copy(layer.bias, layer.bias + layer.outputs, &y[size_t(i) * layer.outputs]);
        rounded.resize(size_t(rows) * layer.inputs);
        for (size_t j = 0; j < rounded.size(); j++) store(rounded[j], x[j]);
        gemm("T", "N", &layer.outputs, &rows, &layer.inputs, &one, layer.weight, &layer.inputs, rounded.data(),
             &layer.inputs, &one, y.data(), &layer.outputs);
    }
};

// Next state h' of gated recurrent units, see gru.cpp.
void update(Index size, const float* a, const float* u, const float* h, float* next) {
#pragma omp simd
    for (Index j = 0; j < size; j++) {
        float r = logistic(a[j] + u[j]);
        float z = logistic(a[size + j] + u[size + j]);
        float n = tanh_of_half(2.0f * (a[2 * size + j] + r * u[2 * size + j]));
        next[j] = n + z * (h[j] - n);
    }
}

struct Hypothesis {
    Index sentence, parent;
    double log_prob, score;
    std::vector<Index> words;
};

// Score of a hypothesis with `words` tokens, see search/penalty.py.
double score(Index penalty, double alpha, double log_prob, double words) {
    switch (penalty) {
        case 1: return log_prob / words;
        case 2: return log_prob / std::pow(words, alpha);
        case 3: return log_prob / std::pow((5 + words) / 6, alpha);
        case 4: return log_prob + alpha * words;
        default: return log_prob;
    }
}

// Returns whether no hypothesis with a score of at most `bound` can enter the best `count` distinct hypotheses.
bool settled(const std::vector<Hypothesis>& finished, size_t count, double bound) {
    std::set<std::vector<Index>> different;
    std::vector<double> scores;
    for (const Hypothesis& h : finished)
        if (different.insert(h.words).second) scores.push_back(h.score);
    if (scores.size() < count) return false;
    std::nth_element(scores.begin(), scores.begin() + count - 1, scores.end(), std::greater<double>());
    return bound <= scores[count - 1];
}

}  // namespace

// Writes the `count` best hypotheses of each sentence, best first: tokens [B count L] followed by `end`,
// log_probs and scores [B count], and the number of hypotheses of each sentence [B]. The precision is that of the weights;
// limits [B] are the largest numbers of tokens, below L.
//
// tokens: what a step adds for its input token, [V 3Q] to the gates and, if token_size is larger, the rest to the readout;
// with token_weight, embeddings [V E] to multiply by it. Weights and biases are null if the decoder does not have them:
//
//     state    [3Q Q], with additive scores of Bahdanau's decoder [3Q + K, Q]: previous state
//     feed     [3Q D]: readout of the previous step (luong_feed)
//     second   [3Q + K, Q], without additive scores [3Q Q]: state between the updates (conditional);
//              [K Q]: new state, as a query of additive scores (luong, luong_feed)
//     combine  [2D M+Q] of a maxout readout (bahdanau), otherwise [D M+Q]: context and new state
//
// `direction` v [K] makes scores additive, with powers eᵏ as keys; others are qᵀk of the state. `projected` [B S 3Q] are the values multiplied by
// the context's weights of the gates, for the decoders whose last update reads the context.
extern "C" void beam_search(void* gemm_function, Precision precision, Index sentences, Index positions, Index units,
                            Index features, Index readout_size, Index vocabulary, Index key_size, Index embedding_size,
                            Index token_size, Index width, Index count, Index longest, Index begin, Index end, Index block,
                            Index penalty, const double* exponent, const float* tokens, const void* token_weight,
                            const float* token_bias, const void* state_weight, const float* state_bias,
                            const void* feed_weight, const float* feed_bias, const void* second_weight,
                            const float* second_bias, const void* combine_weight, const float* combine_bias,
                            const void* output_weight, const float* output_bias, const float* direction,
                            const float* projected, const float* keys, const float* values, const bool* mask,
                            const float* first_state, const Index* limits, Index* words, double* log_probs, double* scores,
                            Index* counts) {
    Multiply product{reinterpret_cast<Gemm>(gemm_function), precision, {}};
    const bool attends_first = projected && !second_weight;  // bahdanau, which also has the maxout readout
    const int gates = 3 * units, query_size = direction ? key_size : 0, joined = features + units;
    const Layer token_layer{token_weight, token_bias, int(embedding_size), int(token_size)};
    const Layer recurrent{state_weight, state_bias, int(units), attends_first ? gates + query_size : gates};
    const Layer feed{feed_weight, feed_bias, int(readout_size), gates};
    const Layer second{second_weight, second_bias, int(units), projected ? gates + query_size : query_size};
    const Layer combine{combine_weight, combine_bias, joined, int(attends_first ? 2 * readout_size : readout_size)};
    const Layer output{output_weight, output_bias, int(readout_size), int(vocabulary)};
    const Layer& last = second_weight ? second : recurrent;  // multiplies the state with which the decoder attends
    const Index best_of = std::min(width, vocabulary), query_stride = direction ? last.outputs : units;
    std::vector<Hypothesis> rows;
    std::vector<std::vector<Hypothesis>> finished(sentences);
    std::vector<float> h(first_state, first_state + sentences * units), fed(sentences * readout_size);
    std::vector<float> embeddings, added, u, a, context_and_h, weights, readouts, logits, best_values, ends;
    std::vector<const float*> token;  // of each row, what its last token adds
    std::vector<Index> best_words, sentence_of;
    for (Index b = 0; b < sentences; b++) rows.push_back({b, b, 0.0, 0.0, {}});
    for (Index length = 0; !rows.empty(); length++) {
        const Index n = rows.size();
        context_and_h.resize(n * joined), weights.resize(n * positions), sentence_of.resize(n), token.resize(n);
        best_values.resize(n * best_of), best_words.resize(n * best_of), ends.resize(n), a.resize(n * gates);
        const Index width_of_token = token_weight ? embedding_size : token_size;
        for (Index i = 0; i < n; i++) {
            sentence_of[i] = rows[i].sentence;
            token[i] = tokens + (length ? rows[i].words.back() : begin) * width_of_token;
        }
        if (token_weight) {
            embeddings.resize(n * embedding_size);
            for (Index i = 0; i < n; i++) std::copy_n(token[i], embedding_size, &embeddings[i * embedding_size]);
            product(n, token_layer, embeddings.data(), added);
            for (Index i = 0; i < n; i++) token[i] = &added[i * token_size];
        }
        // Updates h from the state's products in u and from the token, the sums in a, or both.
        auto update_states = [&](bool reads_token, bool reads_sums, const Layer& layer) {
            for (Index i = 0; i < n; i++) {
                float* sums = &a[i * gates];
                if (reads_token && reads_sums)
                    for (int j = 0; j < gates; j++) sums[j] += token[i][j];
                update(units, reads_sums ? sums : token[i], &u[i * layer.outputs], &h[i * units], &h[i * units]);
            }
        };
        product(n, recurrent, h.data(), u);
        if (feed_weight) product(n, feed, fed.data(), a);
        if (!attends_first) update_states(true, feed_weight, recurrent);
        if (second_weight) product(n, second, h.data(), u);
        search_attention(n, positions, key_size, direction ? &u[last.outputs - key_size] : h.data(), query_stride, keys, mask,
                         sentence_of.data(), direction, direction != nullptr, weights.data());
        if (projected) {
            search_weighted_sum(n, positions, gates, weights.data(), projected, sentence_of.data(), a.data(), gates);
            update_states(attends_first, true, last);
        }
        search_weighted_sum(n, positions, features, weights.data(), values, sentence_of.data(), context_and_h.data(),
                            joined);
        for (Index i = 0; i < n; i++) std::copy_n(&h[i * units], units, &context_and_h[i * joined + features]);
        product(n, combine, context_and_h.data(), readouts);
        for (Index i = 0; i < n; i++) {
            const float *x = &readouts[i * combine.outputs], *y = token[i] + gates;
            float* readout = &readouts[i * readout_size];  // begins where x begins, or before
            if (attends_first) {
                for (Index j = 0; j < readout_size; j++) readout[j] = std::max(x[j] + y[j], x[readout_size + j] + y[readout_size + j]);
            } else if (token_size > gates) {
#pragma omp simd
                for (Index j = 0; j < readout_size; j++) readout[j] = tanh_of_half(2.0f * (x[j] + y[j]));
            } else {
#pragma omp simd
                for (Index j = 0; j < readout_size; j++) readout[j] = tanh_of_half(2.0f * x[j]);
            }
        }
        for (Index i = 0; i < n; i += block) {
            const Index some = std::min(block, n - i);
            product(some, output, &readouts[i * readout_size], logits);
            search_best(some, vocabulary, best_of, end, logits.data(), &best_values[i * best_of],
                        &best_words[i * best_of], &ends[i]);
        }
        std::vector<Hypothesis> next;
        for (Index i = 0, stop; i < n; i = stop) {
            const Index b = rows[i].sentence, limit = limits[b];
            std::vector<Hypothesis> candidates;  // no tokens yet
            for (stop = i; stop < n && rows[stop].sentence == b; stop++)
                for (Index k = 0; k < (length == limit ? 1 : best_of); k++) {
                    const Index word = length == limit ? end : best_words[stop * best_of + k];
                    const float value = length == limit ? ends[stop] : best_values[stop * best_of + k];
                    candidates.push_back({b, stop, rows[stop].log_prob + value, 0.0, {word}});
                }
            auto better = [](const Hypothesis& x, const Hypothesis& y) { return x.log_prob > y.log_prob; };
            std::stable_sort(candidates.begin(), candidates.end(), better);
            const size_t first_open = next.size();
            for (Index k = 0; k < std::min<Index>(width, candidates.size()); k++) {
                Hypothesis& candidate = candidates[k];
                const Index word = candidate.words[0];
                if (candidate.log_prob == -HUGE_VAL) continue;
                candidate.words = rows[candidate.parent].words;
                if (word == end) {
                    candidate.score = score(penalty, *exponent, candidate.log_prob, length + 1);
                    finished[b].push_back(candidate);
                } else {
                    candidate.words.push_back(word);
                    next.push_back(candidate);
                }
            }
            if (next.size() == first_open) continue;
            const double open = next[first_open].log_prob;
            const double bound = std::max(score(penalty, *exponent, open, length + 2),
                                          score(penalty, *exponent, open, std::max(length + 2, limit + 1)));
            if (settled(finished[b], count, bound)) next.resize(first_open);
        }
        rows = std::move(next);
        h.resize(rows.size() * units), fed.resize(rows.size() * readout_size);
        for (size_t i = 0; i < rows.size(); i++) {
            std::copy_n(&context_and_h[rows[i].parent * joined + features], units, &h[i * units]);
            std::copy_n(&readouts[rows[i].parent * readout_size], readout_size, &fed[i * readout_size]);
        }
    }
    for (Index b = 0; b < sentences; b++) {
        auto better = [](const Hypothesis& x, const Hypothesis& y) { return x.score > y.score; };
        std::stable_sort(finished[b].begin(), finished[b].end(), better);
        counts[b] = std::min<Index>(count, finished[b].size());
        for (Index k = 0; k < counts[b]; k++) {
            const Hypothesis& hypothesis = finished[b][k];
            Index* place = words + (b * count + k) * longest;
            std::copy(hypothesis.words.begin(), hypothesis.words.end(), place);
            place[hypothesis.words.size()] = end;
            log_probs[b * count + k] = hypothesis.log_prob;
            scores[b * count + k] = hypothesis.score;
        }
    }
}

// Computes outputs [B T 2Q] and last states [B 2Q] of a bidirectional layer, like `Recurrent._forward_both` in
// layers/recurrence.py. x [B T I], lengths [B]; weight and bias of input and state for each direction. Outputs are 0 at padding.
extern "C" void read_both_directions(void* gemm_function, Precision precision, Index batch, Index steps, Index inputs, Index units,
                                     const float* x, const Index* lengths, const void* input_0, const float* input_bias_0,
                                     const void* state_0, const float* state_bias_0, const void* input_1,
                                     const float* input_bias_1, const void* state_1, const float* state_bias_1,
                                     float* outputs, float* last) {
    Multiply product{reinterpret_cast<Gemm>(gemm_function), precision, {}};
    const Layer layers[2][2] = {
        {{input_0, input_bias_0, int(inputs), int(3 * units)}, {state_0, state_bias_0, int(units), int(3 * units)}},
        {{input_1, input_bias_1, int(inputs), int(3 * units)}, {state_1, state_bias_1, int(units), int(3 * units)}}};
    std::vector<float> a, u, h;
    for (Index direction = 0; direction < 2; direction++) {
        product(batch * steps, layers[direction][0], x, a);
        h.assign(batch * units, 0);
        for (Index t = 0; t < steps; t++) {
            product(batch, layers[direction][1], h.data(), u);
            for (Index b = 0; b < batch; b++) {
                if (t >= lengths[b]) continue;
                const Index position = b * steps + (direction ? lengths[b] - 1 - t : t);
                float* output = outputs + (2 * position + direction) * units;
                update(units, &a[position * 3 * units], &u[b * 3 * units], &h[b * units], output);
                std::copy_n(output, units, &h[b * units]);
            }
        }
        for (Index b = 0; b < batch; b++) std::copy_n(&h[b * units], units, last + (2 * b + direction) * units);
    }
}
