/* Any bytes as a model: what loads is compiled for the CPU, its weights are packed, and two tokens
 * go through it. A model that is refused must come with one line that tells why. */
#include "backend/backend.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_error(enum err err, const struct err_info *e)
{
    if (e->code != err || e->text[0] == '\0' || strchr(e->text, '\n') || strchr(e->text, '\033'))
        abort();
}

static void run(struct backend *b, const struct model *m)
{
    const int32_t tokens[2] = {0, (int32_t)(m->hp.n_vocab - 1)};
    const uint32_t positions[2] = {0, 1}, block = 0;
    const uint32_t n_rows = m->hp.n_positions == 1 ? 1 : 2, last = n_rows - 1;
    struct batch_seq seq = {.n_rows = n_rows, .blocks = &block, .second = last};
    struct batch batch = {.n_rows = n_rows,
                          .tokens = tokens,
                          .positions = positions,
                          .n_seqs = 1,
                          .seqs = &seq,
                          .n_logit_rows = m->generates,
                          .logit_rows = &last,
                          .n_hidden_rows = 1,
                          .hidden_rows = &last};
    struct err_info e = {0};
    float *logits;
    static volatile float sink;
    if (b->ops->run(b, &batch, &logits, &e) != OK)
        abort();
    for (uint32_t i = 0; m->generates && i < m->hp.n_vocab; i++)
        sink = sink + logits[i];
    for (uint32_t i = 0; i < m->hp.n_embd; i++)
        sink = sink + b->ops->hidden(b, BUF_HIDDEN, 0)[i];
    for (uint32_t i = 0; i < m->hp.n_labels; i++)
        sink = sink + b->ops->hidden(b, BUF_SCORES, 0)[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct gguf *g;
    struct model *m;
    struct backend *b;
    struct err_info e = {0};
    const struct backend_config cfg = {.n_threads = 1,
                                       .kv_type = n_bytes % 2 ? KV_F32 : KV_Q8_0,
                                       .n_blocks = 1,
                                       .n_states = 1,
                                       .block_tokens = 16,
                                       .max_rows = 2,
                                       .max_seqs = 1,
                                       .max_logit_rows = 1};
    if (gguf_open_memory(data, n_bytes, &g, NULL))
        return 0; /* fuzz_gguf.c looks at these */
    enum err err = model_from_gguf(g, "fuzzed", &m, &e);
    if (err) {
        check_error(err, &e);
        return 0;
    }
    err = cpu_backend_create(m, &cfg, &b, &e);
    if (err) {
        check_error(err, &e);
    } else {
        run(b, m);
        b->ops->destroy(b);
    }
    model_destroy(m);
    return 0;
}
