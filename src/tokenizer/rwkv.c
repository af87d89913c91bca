#include "tokenizer/rwkv.h"

#include "base/log.h"
#include "base/mem.h"
#include "tokenizer/prefix.h"

#include <stdlib.h>

struct rwkv {
    const struct vocab *v;
    struct prefix_set tokens;
};

static bool fill_set(struct rwkv *r)
{
    const struct vocab *v = r->v;
    if (!prefix_init(&r->tokens, v->n))
        return false;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];
        const struct vocab_token meant = {.text = t->bytes, .text_len = t->n_bytes};
        if (t->plain)
            prefix_add(&r->tokens, &meant, (token_id)i);
    }
    prefix_sort(&r->tokens);
    if (r->tokens.n_too_long)
        log_warn("%u tokens of more than %d bytes are not looked for in texts",
                 r->tokens.n_too_long,
                 PREFIX_MAX_BYTES);
    return true;
}

enum err rwkv_create(const struct vocab *v, struct rwkv **out, struct err_info *e)
{
    struct rwkv *r = mem_zalloc(1, sizeof *r);
    enum err err = OK;
    r->v = v;
    for (int b = 0; b < 256 && !err && v->unk == TOKEN_NONE; b++) {
        if (v->byte_ids[b] == TOKEN_NONE)
            err = err_set_field(
                e, ERR_FORMAT, "tokenizer.ggml.tokens", "there is none for byte \\x%02x", b);
    }
    if (!err && !fill_set(r))
        err = err_set(e, ERR_NOMEM, "no memory for a table of %u words", v->n);
    if (err) {
        rwkv_destroy(r);
        r = NULL;
    }
    *out = r;
    return err;
}

void rwkv_destroy(struct rwkv *r)
{
    if (!r)
        return;
    prefix_deinit(&r->tokens);
    free(r);
}

enum err rwkv_encode(
    const struct rwkv *r, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    enum err err = encoder_room(enc, n, e); /* no byte makes more than one token */
    for (size_t at = 0, len = 1; at < n && !err; at += len, len = 1) {
        struct prefix_walk w = {0};
        token_id id = r->v->unk;
        while (w.depth < n - at && prefix_step(&r->tokens, &w, (unsigned char)text[at + w.depth])) {
            if (!prefix_ends(&r->tokens, &w))
                continue;
            id = r->tokens.entries[w.lo].id;
            len = w.depth;
        }
        token_list_add(enc->out, id);
    }
    return err;
}
