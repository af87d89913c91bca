/* The marks of texts with a gap: as the file's keys say, of which there are older and newer ones,
 * else by the texts that models are known to have for them. */
#include "tokenizer/vocab.h"

#include <string.h>

static const struct {
    const char *keys[2];
    const char *texts[8];
} parts[N_FIM_PARTS] = {
    [FIM_PREFIX] = {{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
                    {"<|fim_prefix|>",
                     "<fim-prefix>",
                     "<fim_prefix>",
                     ("<\xef\xbd\x9c"
                      "fim\xe2\x96\x81"
                      "begin\xef\xbd\x9c>"),
                     "<PRE>",
                     "\xe2\x96\x81<PRE>",
                     "<|code_prefix|>",
                     "<|prefix|>"}},
    [FIM_SUFFIX] = {{"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
                    {"<|fim_suffix|>",
                     "<fim-suffix>",
                     "<fim_suffix>",
                     ("<\xef\xbd\x9c"
                      "fim\xe2\x96\x81hole\xef\xbd\x9c>"),
                     "<SUF>",
                     "\xe2\x96\x81<SUF>",
                     "<|code_suffix|>",
                     "<|suffix|>"}},
    [FIM_MIDDLE] = {{"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
                    {"<|fim_middle|>",
                     "<fim-middle>",
                     "<fim_middle>",
                     ("<\xef\xbd\x9c"
                      "fim\xe2\x96\x81"
                      "end\xef\xbd\x9c>"),
                     "<MID>",
                     "\xe2\x96\x81<MID>",
                     "<|code_middle|>",
                     "<|middle|>"}},
    [FIM_REPO] = {{"tokenizer.ggml.fim_rep_token_id"},
                  {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    [FIM_FILE] = {{"tokenizer.ggml.fim_sep_token_id"}, {"<|file_sep|>"}},
};

/* An id outside the vocabulary counts as absent. */
static enum err by_keys(const struct gguf *g,
                        const struct vocab *v,
                        enum fim_part part,
                        token_id *out,
                        struct err_info *e)
{
    for (int i = 0; i < 2 && parts[part].keys[i] && *out == TOKEN_NONE; i++) {
        uint32_t id = UINT32_MAX;
        enum err err = gguf_get_u32(g, parts[part].keys[i], &id, e);
        if (err)
            return err;
        if (id < v->n)
            *out = (token_id)id;
    }
    return OK;
}

enum err vocab_read_fim(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    for (int part = 0; part < N_FIM_PARTS; part++) {
        token_id *out = &v->fim[part];
        *out = TOKEN_NONE;
        enum err err = by_keys(g, v, (enum fim_part)part, out, e);
        if (err)
            return err;
        for (int i = 0; i < 8 && parts[part].texts[i] && *out == TOKEN_NONE; i++) {
            const char *text = parts[part].texts[i];
            token_id id = vocab_index_find(v, &v->by_text, text, strlen(text));
            if (id != TOKEN_NONE && v->tokens[id].type == TOKEN_CONTROL)
                *out = id;
        }
    }
    return OK;
}
