/* Embeddings: rows read back out of the layout that products need, so that a matrix which is both
 * (tied embeddings) lies in memory once.
 *
 * out[r][k] = w[token[r]][k] * scale, w bit for bit what gguf_dequantize (gguf/blocks.c) says: the
 * same operations on the same numbers, each rounded once. (Scales lie divided by a power of two,
 * which loses nothing unless a row has ones above 2^9 beside subnormal ones, or blocks of MXFP4
 * 2^30 apart.) A thread a value, so that all are gathered at once; where a number's bits are is
 * linear_layout.h. Numbers: some thousand values a row: bound by the latency of a token's number
 * and then of its bits, of no account beside the products. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/linear_tiles.cuh"

static constexpr uint32_t EMBED_THREADS = 256;

/* The chunk of one weight, and where the weight is in it. */
struct weight_at {
    const uint8_t *head, *chunk;
    uint32_t row, k, sub; /* of the part, of the chunk, of the run */
    cuda_spot spot;
};

static __device__ uint32_t bits_at(const uint8_t *plane, uint32_t at, uint32_t bits)
{
    return (plane[at / 8] >> at % 8) & ((1u << bits) - 1);
}
static __device__ float f16_at(const uint8_t *p)
{
    return __half2float(__ushort_as_half(load<unsigned short>(p)));
}
/* Entry e of n of a head of f16, or of bytes that begin at `from`. */
static __device__ float head_f16(const weight_at &w, uint32_t e, uint32_t n)
{
    return f16_at(w.head + cuda_head_index(w.row, e, n) * 2);
}
static __device__ int head_byte(const weight_at &w, uint32_t from, uint32_t e, uint32_t n)
{
    return w.head[from + cuda_head_index(w.row, e, n)];
}
static __device__ float product(float a, int b)
{
    return __fmul_rn(a, static_cast<float>(b));
}
static __device__ int nibble_at(const weight_at &w)
{
    return static_cast<int>(bits_at(w.chunk, cuda_at_nibble(w.spot), 4));
}
static __device__ int five_bits_at(const weight_at &w)
{
    return nibble_at(w) | static_cast<int>(bits_at(w.chunk + 512, cuda_at_fifth(w.spot), 1) << 4);
}
static __device__ int two_bits_at(const weight_at &w)
{
    return static_cast<int>(bits_at(w.chunk, cuda_at_two(w.spot), 2));
}
static __device__ int iq4_value(const weight_at &w)
{
    const uint32_t values[4] = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u};
    const uint32_t i = bits_at(w.chunk, cuda_at_index(w.spot), 4);
    return static_cast<int>((values[i / 4] >> (i % 4 * 8)) & 255) - 128;
}
/* The value doubled, of a sign, two bits of exponent and one of mantissa. */
static __device__ int fp4_value(const weight_at &w)
{
    const int q = static_cast<int>(bits_at(w.chunk, cuda_at_fp4(w.spot), 4));
    const int exponent = (q >> 1) & 3, mantissa = q & 1;
    const int v = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
    return q & 8 ? -v : v;
}

/* In 2^-24 of the row's unit; floats have none. */
static __device__ float weight_of(int type, const weight_at &w)
{
    const uint32_t block = w.k / 32, group = w.k / 16;
    switch (type) {
    case CUDA_TYPE_F16:
        return f16_at(w.chunk + cuda_at_float16(w.spot) / 8);
    case CUDA_TYPE_BF16:
        return __uint_as_float(
            static_cast<uint32_t>(load<unsigned short>(w.chunk + cuda_at_float16(w.spot) / 8))
            << 16);
    case CUDA_TYPE_Q8_0:
        return product(head_f16(w, block, 2),
                       static_cast<int>(bits_at(w.chunk, cuda_at_byte(w.spot), 8)) - 128);
    case CUDA_TYPE_Q4_0:
        return product(head_f16(w, block, 2), nibble_at(w) - 8);
    case CUDA_TYPE_Q5_0:
        return product(head_f16(w, block, 2), five_bits_at(w) - 16);
    case CUDA_TYPE_Q4_1:
        return __fadd_rn(product(head_f16(w, block, 4), nibble_at(w)),
                         product(head_f16(w, 2 + block, 4), CUDA_MIN_STEP));
    case CUDA_TYPE_Q5_1:
        return __fadd_rn(product(head_f16(w, block, 4), five_bits_at(w)),
                         product(head_f16(w, 2 + block, 4), CUDA_MIN_STEP));
    case CUDA_TYPE_IQ4_NL:
        return product(head_f16(w, block, 2), iq4_value(w));
    case CUDA_TYPE_MXFP4: { /* its floats, doubled here, are f16 of 2^-14 */
        const int d = head_byte(w, 0, block, 2) << 8;
        const float h = __half2float(__ushort_as_half(static_cast<unsigned short>(d)));
        return product(__fmul_rn(h, 0x1p9f), fp4_value(w));
    }
    case CUDA_TYPE_NVFP4: { /* likewise, with scales times 2^15 */
        const int d = head_byte(w, 0, group, 4) << 7;
        const float h = __half2float(__ushort_as_half(static_cast<unsigned short>(d)));
        return product(__fmul_rn(h, 0x1p24f), fp4_value(w));
    }
    case CUDA_TYPE_IQ4_XS:
        return product(product(head_f16(w, 0, 1), head_byte(w, 32 + w.sub * 32, block, 2) - 32),
                       iq4_value(w));
    case CUDA_TYPE_TABLE: {
        const uint32_t i = bits_at(w.chunk, cuda_at_index(w.spot), 4);
        return product(product(head_f16(w, 0, 1), head_byte(w, 32 + w.sub * 64, group, 4)),
                       static_cast<int>(w.head[CUDA_HEAD_TABLE - 16 + i]) - 128);
    }
    case CUDA_TYPE_Q2_K: {
        const int s = head_byte(w, 64 + w.sub * 64, group, 4);
        return __fsub_rn(product(product(head_f16(w, 0, 2), s & 15), two_bits_at(w)),
                         product(head_f16(w, 1, 2), s >> 4));
    }
    case CUDA_TYPE_Q3_K: {
        const int third = static_cast<int>(bits_at(w.chunk + 256, cuda_at_third(w.spot), 1));
        return product(product(head_f16(w, 0, 1), head_byte(w, 32 + w.sub * 64, group, 4) - 32),
                       two_bits_at(w) + third * 4 - 4);
    }
    case CUDA_TYPE_Q6_K: {
        const int upper = static_cast<int>(bits_at(w.chunk + 512, cuda_at_sixth(w.spot), 2));
        return product(product(head_f16(w, 0, 1), head_byte(w, 32 + w.sub * 64, group, 4) - 128),
                       nibble_at(w) + upper * 16 - 32);
    }
    default: { /* Q4_K, Q5_K */
        const int q = type == CUDA_TYPE_Q4_K ? nibble_at(w) : five_bits_at(w);
        const float step = product(head_f16(w, 0, 2), head_byte(w, 64 + w.sub * 64, block, 4));
        return __fsub_rn(product(step, q),
                         product(head_f16(w, 1, 2), head_byte(w, 64 + w.sub * 64, 2 + block, 4)));
    }
    }
}

/* Value k of a token's row. */
static __device__ float value_of(
    const cuda_matrix &m, const cuda_layout &layout, size_t part_bytes, uint32_t token, uint32_t k)
{
    const uint8_t *part = m.data + token / CUDA_PART_ROWS * part_bytes;
    const uint32_t units_bytes = cuda_units_bytes(layout.head_bytes);
    const uint32_t run_bytes = layout.head_bytes + layout.chunks * layout.chunk_bytes;
    weight_at w;
    w.row = token % CUDA_PART_ROWS;
    if (m.type == CUDA_TYPE_F32)
        return load<float>(part + w.row * (part_bytes / CUDA_PART_ROWS) + k * sizeof(float));
    const uint32_t chunk = k / CUDA_CHUNK_K;
    w.sub = chunk % layout.chunks;
    w.head = part + units_bytes + chunk / layout.chunks * static_cast<size_t>(run_bytes);
    w.chunk = w.head + layout.head_bytes + w.sub * layout.chunk_bytes;
    w.k = k % CUDA_CHUNK_K;
    w.spot = cuda_spot_of(w.row, w.k);
    const float v = weight_of(m.type, w);
    if (units_bytes == 0)
        return v;
    return __fmul_rn(__fmul_rn(v, 0x1p-24f), load<float>(part + w.row * sizeof(float)));
}

/* grid: [rows][values / EMBED_THREADS] */
static __global__ void __launch_bounds__(EMBED_THREADS) embed(const cuda_step step,
                                                              const cuda_matrix m,
                                                              const cuda_layout layout,
                                                              size_t part_bytes,
                                                              const cuda_buf out,
                                                              float scale)
{
    cuda_let_next_begin();
    const uint32_t row = blockIdx.x, k = blockIdx.y * EMBED_THREADS + threadIdx.x;
    const bool there = row < early_value(&step.counts->n_rows);
    int32_t from = -1, token = 0;
    if (there && step.token_from)
        from = early_struct(&step.token_from[row]);
    if (there && from < 0)
        token = early_struct(&step.tokens[row]);
    cuda_wait_before();
    if (!there || k >= m.n_in)
        return;
    if (from >= 0)
        token = step.chosen[from];
    token = token < 0 ? 0 : token; /* no number was chosen */
    out.p[row * out.stride + k] =
        __fmul_rn(value_of(m, layout, part_bytes, static_cast<uint32_t>(token), k), scale);
}

extern "C" void cuda_embed(const cuda_at *at, const cuda_matrix *w, cuda_buf out, float scale)
{
    if (at->bounds.rows == 0)
        return;
    cuda_matrix m = *w;
    m.type = cuda_stored_as(w->type);
    CUDA_LAUNCH_NEXT(embed,
                     dim3(at->bounds.rows, (m.n_in + EMBED_THREADS - 1) / EMBED_THREADS),
                     EMBED_THREADS,
                     0,
                     at->stream,
                     at->step,
                     m,
                     cuda_layout_of(w->type),
                     cuda_part_bytes(w->type, w->n_in),
                     out,
                     scale);
}
