/* Metadata keys under the architecture's prefix ("llama.block_count"); used by model/ only. */
#ifndef WEIR_MODEL_KEYS_H
#define WEIR_MODEL_KEYS_H

#include "model/arch.h"

/* Key `suffix` of the model's architecture; without one *out stays. An array serves for an integer
 * where all its elements are the same. Errors: ERR_FORMAT, ERR_UNSUPPORTED, naming the key. */
enum err key_u32(const struct model *m, const char *suffix, uint32_t *out, struct err_info *e)
    WEIR_MUST_USE;
enum err key_bool(const struct model *m, const char *suffix, bool *out, struct err_info *e)
    WEIR_MUST_USE;
bool key_is_integer(enum gguf_kind kind);
const struct gguf_kv *key_find(const struct model *m, const char *suffix); /* or NULL */

/* Whether kv says yes or no of each of n: a list of bools, or of integers, or one of them for all,
 * as llama.cpp writes what it saves; and what it says of i. */
bool key_is_flags(const struct gguf_kv *kv, uint64_t n);
bool key_flag(const struct gguf_kv *kv, uint64_t i);

/* As key_u32, and the value is from lo to hi; where *v is 0 at first and lo is not, it must be
 * there. */
enum err key_u32_in(const struct model *m,
                    const char *suffix,
                    uint32_t lo,
                    uint32_t hi,
                    uint32_t *v,
                    struct err_info *e) WEIR_MUST_USE;

/* As key_u32_in, but a 0 is no value, and *v stays if it is another: so llama.cpp saves what a
 * model has not. */
enum err key_u32_or_0(const struct model *m,
                      const char *suffix,
                      uint32_t lo,
                      uint32_t hi,
                      uint32_t *v,
                      struct err_info *e) WEIR_MUST_USE;

/* The layer's value, from lo to hi: one for all, or an array with as many as there are layers (and,
 * if it has those, for the layers beside them). Without the key *out stays. Errors: ERR_FORMAT. */
enum err key_u32_layer(const struct model *m,
                       const char *suffix,
                       uint32_t layer,
                       uint32_t lo,
                       uint32_t hi,
                       uint32_t *out,
                       struct err_info *e) WEIR_MUST_USE;

/* The same of each layer. */
enum err key_u32_layers(const struct model *m,
                        const char *suffix,
                        uint32_t lo,
                        uint32_t hi,
                        uint32_t *out,
                        struct err_info *e) WEIR_MUST_USE;

/* As key_u32, a number; lo < value < hi, or what *v had. */
enum err key_f32_in(const struct model *m,
                    const char *suffix,
                    float lo,
                    float hi,
                    float *v,
                    struct err_info *e) WEIR_MUST_USE;

/* The layer's value: one f32 for all, or an array with as many as there are layers (and, if it has
 * those, for the layers beside them); lo < value < hi. Without the key *v stays. Errors:
 * ERR_FORMAT.
 */
enum err key_f32_layer(const struct model *m,
                       const char *suffix,
                       uint32_t layer,
                       float lo,
                       float hi,
                       float *v,
                       struct err_info *e) WEIR_MUST_USE;

/* Values of a feed-forward part: far above any real model. */
#define MAX_FF (1u << 20)

/* hparams.c: m->hp from the file. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
enum err hparams_read(struct model *m, const struct arch *arch, struct err_info *e) WEIR_MUST_USE;

/* How this file's rows are normalised. */
enum norm_kind hparams_norm(const struct model *m, const struct arch *arch);
/* How often the file's layers are gone through; n_layer counts them each time. */
uint32_t hparams_loops(const struct model *m, const struct arch *arch);

/* scales.c: the factors, caps and epsilon of m->hp, once all sizes are known. Errors: ERR_FORMAT,
 * ERR_UNSUPPORTED. */
enum err scales_read(struct model *m, const struct arch *arch, struct err_info *e) WEIR_MUST_USE;

/* cycles.c: how often which stack is gone through, once n_layer is known. Errors: ERR_FORMAT,
 * ERR_UNSUPPORTED. */
enum err cycles_read(struct model *m, struct err_info *e) WEIR_MUST_USE;

/* Whether the layer sees hp.window positions only. */
bool hparams_windowed(const struct model *m, const struct arch *arch, uint32_t layer);

/* recurrent_sizes.c: which layers are recurrent, once their other widths are known, and the sizes
 * of their states. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
enum err recurrent_read_layers(struct model *m,
                               const struct arch *arch,
                               struct err_info *e) WEIR_MUST_USE;
enum err recurrent_read(struct model *m, const struct arch *arch, struct err_info *e) WEIR_MUST_USE;

/* experts.c: how many there are, their widths and what weighs them, once n_ff is known; without
 * experts every layer must have a dense part. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
enum err experts_read(struct model *m, const struct arch *arch, struct err_info *e) WEIR_MUST_USE;

/* recall.c: how often, and how far apart, what the stream was is kept. Errors: ERR_FORMAT,
 * ERR_UNSUPPORTED. */
enum err recall_read(struct model *m, struct err_info *e) WEIR_MUST_USE;

/* rope.c: m->ropes from m->hp and the file, for a context of n_ctx positions. Errors: ERR_FORMAT,
 * ERR_UNSUPPORTED. */
enum err rope_read(struct model *m, const struct arch *arch, uint32_t n_ctx, struct err_info *e)
    WEIR_MUST_USE;

/* What YaRN raises scores by, in models that have it apart from the rotation: deepseek2's. Errors:
 * ERR_FORMAT, ERR_UNSUPPORTED. */
enum err rope_scores(const struct model *m,
                     const struct arch *arch,
                     double *out,
                     struct err_info *e) WEIR_MUST_USE;

/* The base grows by alpha to the power of d / (d - 2): of the pairs of d values the slowest then
 * turns alpha times slower. Errors: ERR_FORMAT. */
enum err rope_grow_base(struct model *m, struct err_info *e) WEIR_MUST_USE;

/* The tensors that rope_read knows: the file's, or NULL where it has none. i < N_ROPE_TENSORS. */
enum { N_ROPE_TENSORS = 3 };
const struct gguf_tensor *rope_tensor(const struct model *m, int i);

#endif
