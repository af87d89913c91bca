/* Which tokens are special, as the file says or as their texts give away. Files forget types, and
 * no key lists all the tokens that end a turn. */
#include "tokenizer/vocab.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Texts with a meaning in the well-known chat formats. They become control tokens whichever type
 * the file gives them: typed as user-defined they would be matched in a user's text too. */
static const struct {
    const char *text;
    bool eog;
} marks[] = {
    {"<|im_end|>", true},
    {"<|eot_id|>", true},
    {"<|eom_id|>", true},
    {"<|eot|>", true},
    {"<|eom|>", true},
    {"<end_of_turn>", true},
    {"<|endoftext|>", true},
    {"<|end_of_text|>", true},
    {"<|end|>", true},
    {"<|return|>", true},
    {"<|call|>", true},
    {"<|calls|>", true},
    {"<|flush|>", true},
    {"<turn|>", true},
    {"<|tool_response>", true},
    {"<eos>", true},
    {"</s>", true},
    {"<EOT>", true},
    {"_<EOT>", true},
    {"[EOT]", true},
    {"[EOS]", true},
    {"[e~[", true},
    {"<end_of_utterance>", true},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     true},
    /* of filling in the middle; what follows one of these is another file */
    {"<|fim_pad|>", true},
    {"<fim-pad>", true},
    {"<fim_pad>", true},
    {"<PAD>", true},
    {"[PAD]", true},
    {"<|fim_repo|>", true},
    {"<|repo_name|>", true},
    {"<fim-repo>", true},
    {"<REPO>", true},
    {"<reponame>", true},
    {"<|file_sep|>", true},
    {"<|file_separator|>", true},
    {"<|fim_prefix|>", false},
    {"<fim-prefix>", false},
    {"<fim_prefix>", false},
    {"<|fim_suffix|>", false},
    {"<fim-suffix>", false},
    {"<fim_suffix>", false},
    {"<|fim_middle|>", false},
    {"<fim-middle>", false},
    {"<fim_middle>", false},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     false},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
     false},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     false},
    {"<|code_prefix|>", false},
    {"<|code_suffix|>", false},
    {"<|code_middle|>", false},
    {"<|prefix|>", false},
    {"<|suffix|>", false},
    {"<|middle|>", false},
    {"<PRE>", false},
    {"<SUF>", false},
    {"<MID>", false},
    {"<|im_start|>", false},
    {"<|start_header_id|>", false},
    {"<|end_header_id|>", false},
    {"<start_of_turn>", false},
    {"<|begin_of_text|>", false},
    {"<|turn>", false},
    {"<|start|>", false},
    {"<|message|>", false},
};

static struct vocab_token *find(struct vocab *v, const char *text)
{
    token_id id = vocab_index_find(v, &v->by_text, text, strlen(text));
    return id == TOKEN_NONE ? NULL : &v->tokens[id];
}

static bool is_control(struct vocab *v, const char *text)
{
    const struct vocab_token *t = find(v, text);
    return t && t->type == TOKEN_CONTROL;
}

/* ---- ids that keys name ---- */

/* An id that the file names; one outside the vocabulary counts as not named, with a warning,
 * because such files exist and work. */
static enum err read_id(
    const struct gguf *g, const struct vocab *v, const char *key, token_id *out, struct err_info *e)
{
    uint32_t id = UINT32_MAX;
    if (!gguf_find(g, key))
        return OK;
    enum err err = gguf_get_u32(g, key, &id, e);
    if (err)
        return err;
    if (id >= v->n)
        log_warn("%s = %u is outside the vocabulary of %u tokens; ignored", key, id, v->n);
    else
        *out = (token_id)id;
    return OK;
}

/* What a family's files mean where they name no ids, if a token of that type is there. */
static void default_ids(struct vocab *v)
{
    static const struct {
        enum vocab_family family;
        uint32_t bos, eos, unk, sep; /* UINT32_MAX: none */
    } families[] = {
        {VOCAB_SPM, 1, 2, 0, UINT32_MAX},
        {VOCAB_WPM, 101, UINT32_MAX, 100, 102},
        {VOCAB_UGM, UINT32_MAX, 1, 2, UINT32_MAX},
        {VOCAB_PLAMO, 1, 2, 0, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (families[i].family != v->family)
            continue;
        uint32_t ids[] = {families[i].bos, families[i].eos, families[i].unk, families[i].sep};
        token_id *out[] = {&v->bos, &v->eos, &v->unk, &v->sep};
        for (size_t k = 0; k < 4; k++)
            if (ids[k] < v->n && (v->tokens[ids[k]].type == TOKEN_CONTROL ||
                                  v->tokens[ids[k]].type == TOKEN_UNKNOWN))
                *out[k] = (token_id)ids[k];
    }
}

/* A token that the file names as special is one, even where the types forgot it, unless its text
 * could be ordinary (some models end a turn with a newline). */
static void make_control(struct vocab_token *t)
{
    bool marked = t->text_len > 2 && t->text[0] == '<' && t->text[t->text_len - 1] == '>';
    if (marked && (t->type == TOKEN_NORMAL || t->type == TOKEN_USER_DEFINED))
        t->type = TOKEN_CONTROL;
}

static enum err read_ids(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    token_id eot = TOKEN_NONE, eom = TOKEN_NONE, pad = TOKEN_NONE, rep = TOKEN_NONE;
    token_id file_sep = TOKEN_NONE, cls = TOKEN_NONE;
    const struct {
        const char *key;
        token_id *id;
        bool eog;
    } ids[] = {
        {"tokenizer.ggml.cls_token_id", v->family == VOCAB_WPM ? &v->bos : &cls, false},
        {"tokenizer.ggml.bos_token_id", &v->bos, false},
        {"tokenizer.ggml.eos_token_id", &v->eos, true},
        {"tokenizer.ggml.eot_token_id", &eot, true},
        {"tokenizer.ggml.eom_token_id", &eom, true},
        {"tokenizer.ggml.fim_pad_token_id", &pad, true},
        {"tokenizer.ggml.fim_rep_token_id", &rep, true},
        {"tokenizer.ggml.fim_sep_token_id", &file_sep, true},
        {"tokenizer.ggml.seperator_token_id", &v->sep, false}, /* so it is spelled */
        {"tokenizer.ggml.unknown_token_id", &v->unk, false},
    };
    default_ids(v);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        enum err err = read_id(g, v, ids[i].key, ids[i].id, e);
        if (err)
            return err;
        if (*ids[i].id == TOKEN_NONE)
            continue;
        struct vocab_token *t = &v->tokens[*ids[i].id];
        t->eog |= ids[i].eog;
        if (ids[i].id != &v->unk)
            make_control(t);
    }
    return OK;
}

/* All that end an answer, as Ollama's files list them. */
static enum err read_eos_list(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    const struct gguf_kv *kv;
    enum err err = vocab_array(g, "tokenizer.ggml.eos_token_ids", GGUF_I32, &kv, e);
    for (uint64_t i = 0; !err && kv && i < kv->n_elems; i++) {
        token_id id;
        memcpy(&id, kv->elems + sizeof id * i, sizeof id);
        if (id < 0 || (uint32_t)id >= v->n)
            continue;
        make_control(&v->tokens[id]);
        v->tokens[id].eog = true;
    }
    return err;
}

/* ---- tokens known by their texts ---- */

/* "</s>" closes a line struck through where it is one of several such tokens (Gemma). */
static bool is_markup(struct vocab *v, const struct vocab_token *t)
{
    const bool ends = v->eos == TOKEN_NONE || t == &v->tokens[v->eos];
    return !ends && t == find(v, "</s>") && find(v, "</strong>");
}

static void read_marks(struct vocab *v)
{
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        struct vocab_token *t = find(v, marks[i].text);
        if (!t || is_markup(v, t))
            continue;
        make_control(t);
        t->eog |= marks[i].eog && t->type == TOKEN_CONTROL;
    }
    /* Gemma 4 and PLaMo 2 have it as text, whatever the file says */
    struct vocab_token *s = find(v, "</s>");
    if (s && (find(v, "<|tool_response>") || find(v, "<|plamo:eos|>"))) {
        s->type = TOKEN_NORMAL;
        s->eog = false;
    }
    /* here they end a message, and the turn goes on; Llama 4's <|eom|> ends a turn that calls */
    struct vocab_token *end = find(v, "<|end|>"), *eom = find(v, "<|eom|>");
    bool calls = (is_control(v, "<|return|>") && is_control(v, "<|call|>")) ||
                 (is_control(v, "<|calls|>") && is_control(v, "<|flush|>"));
    if (end && calls)
        end->eog = false;
    if (eom && is_control(v, "<|start|>") && is_control(v, "<|message|>"))
        eom->eog = false;
}

static bool contains(struct gguf_str s, const char *what)
{
    size_t n = strlen(what);
    for (size_t i = 0; i + n <= s.len; i++)
        if (strncasecmp(s.data + i, what, n) == 0)
            return true;
    return false;
}

/* ChatGLM3's answers end where somebody else's turn begins; its files do not say so. */
static enum err read_roles(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    static const char *const roles[] = {"<|user|>", "<|observation|>"};
    struct gguf_str arch = {"", 0};
    enum err err = gguf_get_str(g, "general.architecture", &arch, e);
    const bool ours = !err && v->family == VOCAB_SPM && contains(arch, "chatglm");
    for (size_t i = 0; ours && i < sizeof roles / sizeof roles[0]; i++)
        if (is_control(v, roles[i]))
            find(v, roles[i])->eog = true;
    return err;
}

/* ---- white space beside special tokens ---- */

/* Files do not carry these; they follow from the model's name, in which today's converter has
 * blanks for hyphens. */
static enum err read_strips(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    struct gguf_str name = {"", 0}, arch = {"", 0}, pre = {"", 0};
    enum err err = gguf_get_str(g, "general.name", &name, e);
    if (!err)
        err = gguf_get_str(g, "general.architecture", &arch, e);
    if (!err)
        err = gguf_get_str(g, "tokenizer.ggml.pre", &pre, e);
    if (err)
        return err;
    struct vocab_token *mask = NULL;
    if (contains(pre, "jina-v2-") || contains(arch, "nomic-bert-moe") ||
        contains(arch, "jina-bert-v3"))
        mask = find(v, "<mask>");
    else if (contains(name, "modern-bert"))
        mask = find(v, "[MASK]");
    if (mask)
        mask->strips_left = true;
    bool phi3 = contains(name, "phi-3") || contains(name, "phi 3") || contains(name, "phi3");
    static const char *const not_phi3[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (uint32_t i = 0; phi3 && i < v->n; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.*): n of them are there */
        uint8_t type = v->tokens[i].type;
        v->tokens[i].strips_right =
            type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
    }
    for (size_t i = 0; phi3 && i < sizeof not_phi3 / sizeof not_phi3[0]; i++) {
        struct vocab_token *t = find(v, not_phi3[i]);
        if (t)
            t->strips_right = false;
    }
    return OK;
}

/* ---- tokens that never come ---- */

/* Gemma 4's of pictures and sounds are such, and MiniMax's without an embedding. Ids outside the
 * vocabulary cannot come either. */
static enum err read_suppressed(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    const char *key = "tokenizer.ggml.suppress_tokens";
    const struct gguf_kv *kv;
    enum err err = vocab_array(g, key, GGUF_I32, &kv, e);
    if (err || !kv || kv->n_elems == 0)
        return err;
    v->suppressed = calloc(v->n, sizeof *v->suppressed);
    if (!v->suppressed)
        return err_set(e, ERR_NOMEM, "no memory for %s", key);
    for (uint64_t i = 0; i < kv->n_elems; i++) {
        token_id id;
        memcpy(&id, kv->elems + sizeof id * i, sizeof id);
        if (id < 0 || (uint32_t)id >= v->n || v->tokens[id].suppressed)
            continue;
        v->tokens[id].suppressed = true;
        v->suppressed[v->n_suppressed++] = id;
    }
    return OK;
}

/* ---- flags ---- */

static enum err read_flags(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    bool bpe = v->family == VOCAB_BPE, gemma4 = bpe && v->rule->whole_lines;
    v->add_space_prefix = v->family == VOCAB_SPM;
    v->add_bos = v->family == VOCAB_SPM || v->family == VOCAB_WPM || (bpe && v->rule->adds_bos);
    v->add_eos = v->family == VOCAB_UGM;
    v->add_sep = v->family == VOCAB_WPM || (bpe && v->rule->adds_sep);
    v->lowercase = true;
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {
        {"tokenizer.ggml.add_bos_token", &v->add_bos},
        {"tokenizer.ggml.add_eos_token", &v->add_eos},
        {"tokenizer.ggml.add_sep_token", &v->add_sep},
        {"tokenizer.ggml.add_space_prefix", &v->add_space_prefix},
        {"tokenizer.ggml.remove_extra_whitespaces", &v->remove_extra_spaces},
        {"tokenizer.ggml.normalizer.lowercase", &v->lowercase},
    };
    enum err err = OK;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && !err; i++)
        err = gguf_get_bool(g, flags[i].key, flags[i].flag, e);
    v->strip_accents = v->lowercase;
    if (!err)
        err = gguf_get_bool(g, "tokenizer.ggml.normalizer.strip_accents", &v->strip_accents, e);
    v->add_bos |= gemma4; /* early files say false, and the model needs it */
    v->add_sep |= v->family == VOCAB_WPM && v->add_eos; /* newer files call BERT's SEP its EOS */
    return err;
}

enum err vocab_read_special(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    enum err err;
    if ((err = read_ids(g, v, e)) || (err = read_eos_list(g, v, e)))
        return err;
    read_marks(v);
    if ((err = read_roles(g, v, e)) || (err = read_strips(g, v, e)) ||
        (err = read_suppressed(g, v, e)))
        return err;
    return read_flags(g, v, e);
}
