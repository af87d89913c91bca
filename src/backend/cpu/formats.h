/* The formats of weights, a row each, for whoever has something of every format:
 *
 *     X(NAME, name, k, bytes, line, acts, many)
 *
 *     NAME   of GGUF_TYPE_NAME; PANEL_NAME is how its panels lie
 *     name   pack_name makes them (pack.c, pack_grid.c); linear_FAMILY_impl.h draws them, and has
 *            run_name and column_name
 *     k      how many K are a unit of a panel, of all columns
 *     bytes  what a unit takes: PANEL_NAME_BYTES
 *     line   its share of a line of 64 bytes that goes before several units; 0: there is none
 *     acts   which activations are read (kernels.h); 0: own
 *     many   run: one kernel everywhere; amx: amx_name on a tile unit; own: each table of kernels
 *            says itself what linear is and what it reads (table_impl.h) */
#ifndef WEIR_BACKEND_CPU_FORMATS_H
#define WEIR_BACKEND_CPU_FORMATS_H

/* clang-format off */
#define CPU_FLOAT_FORMATS(X)                                               \
    X(F32,     f32,     1,   64,                    0,  ACT_F32,      run) \
    X(F16,     f16,     1,   32,                    0,  0,            own) \
    X(BF16,    bf16,    1,   32,                    0,  0,            own)

#define CPU_BLOCK_FORMATS(X)                                               \
    X(Q8_0,    q8_0,    32,  512,                   32, 0,            own) \
    X(Q4_0,    q4_0,    32,  256,                   32, ACT_INT8,     amx) \
    X(Q4_1,    q4_1,    32,  64 + 256,              0,  ACT_INT8,     amx) \
    X(Q5_0,    q5_0,    32,  320,                   32, ACT_INT8,     amx) \
    X(Q5_1,    q5_1,    32,  64 + 320,              0,  ACT_INT8,     amx) \
    X(Q2_K,    q2_k,    256, 64 + 4 * 64 + 8 * 128, 0,  ACT_INT8_128, amx) \
    X(Q3_K,    q3_k,    256, 4 * 64 + 8 * 192,      32, ACT_INT8_128, amx) \
    X(Q4_K,    q4_k,    256, 64 + 4 * 64 + 8 * 256, 0,  0,            own) \
    X(Q5_K,    q5_k,    256, 64 + 4 * 64 + 8 * 320, 0,  0,            own) \
    X(Q6_K,    q6_k,    256, 64 + 4 * 64 + 8 * 384, 0,  ACT_INT8_128, amx) \
    X(IQ4_NL,  iq4_nl,  32,  256,                   32, ACT_INT8,     amx) \
    X(IQ4_XS,  iq4_xs,  256, 128 + 8 * 256,         32, ACT_INT8_128, amx) \
    X(MXFP4,   mxfp4,   32,  256,                   16, ACT_INT8,     amx) \
    X(NVFP4,   nvfp4,   64,  64 + 2 * 256,          0,  ACT_INT8,     run) \
    X(IQ1_S,   iq1_s,   256, 256 + 8 * 64,          32, ACT_INT8,     run) \
    X(IQ1_M,   iq1_m,   256, 128 + 256 + 8 * 64,    32, ACT_INT8,     run) \
    X(IQ2_XXS, iq2_xxs, 256, 64 + 8 * 128,          32, ACT_INT8,     run) \
    X(IQ2_XS,  iq2_xs,  256, 128 + 64 + 8 * 128,    32, ACT_INT8,     run) \
    X(IQ2_S,   iq2_s,   256, 128 + 128 + 8 * 128,   32, ACT_INT8,     run) \
    X(IQ3_XXS, iq3_xxs, 256, 64 + 8 * 192,          32, ACT_INT8,     run) \
    X(IQ3_S,   iq3_s,   256, 64 + 128 + 8 * 192,    32, ACT_INT8,     run) \
    X(TQ1_0,   tq1_0,   256, 13 * 64,               32, ACT_INT8,     run) \
    X(TQ2_0,   tq2_0,   256, 8 * 128,               32, ACT_INT8,     run) \
    X(Q1_0,    q1_0,    128, 4 * 64,                32, ACT_INT8,     run) \
    X(Q2_0,    q2_0,    64,  2 * 128,               32, ACT_INT8,     run)
/* clang-format on */

#define CPU_FORMATS(X) CPU_FLOAT_FORMATS(X) CPU_BLOCK_FORMATS(X)

#endif
