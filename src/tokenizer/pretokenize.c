#include "tokenizer/pretokenize.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* White space as Unicode has it since 6.3; PCRE2's \s would add U+180E. Used within [ ]. */
#define WS "\\p{Z}\\t-\\r\\x{85}"
#define LN "\\p{L}\\p{N}"
#define SPACES "[" WS "]+(?![^" WS "])|[" WS "]+"

/* GPT-2 (Radford et al. 2019) and the two descendants of tiktoken's cl100k_base: words take one
 * leading character, and line breaks close a word. `digits` is how many make a number. */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS LN "]+|" SPACES
#define CL100K(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" LN "]?\\p{L}+|\\p{N}" digits "| ?[^" WS LN             \
    "]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES

/* StarCoder's family first isolates each digit, then cuts the rest as GPT-2 does: one pattern does
 * both when white space before a digit ends a text. */
#define DIGITS_GPT2                                                                                \
    "'s|'t|'re|'ve|'m|'ll|'d|\\p{N}| ?\\p{L}+| ?[^" WS LN "]+|[" WS "]+(?![^" WS "\\p{N}])|[" WS   \
    "]+"

static const struct rule {
    const char *name;
    const char *pattern;
    bool whole_words;
} rules[] = {
    {"gpt-2", GPT2, false},
    {"default", GPT2, false},
    {"llama-bpe", CL100K("{1,3}"), true},
    {"llama3", CL100K("{1,3}"), true},
    {"llama-v3", CL100K("{1,3}"), true},
    {"qwen2", CL100K(""), false},
    {"deepseek-r1-qwen", CL100K(""), false},
    {"starcoder", DIGITS_GPT2, false},
    {"smollm", DIGITS_GPT2, false},
};

struct pretokenizer {
    const struct rule *rule;
    pcre2_code *code;
    bool jit;
};

struct pretokenize_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL without JIT */
};

#define JIT_STACK_START (32 * 1024)
#define JIT_STACK_MAX (1024 * 1024)

static const struct rule *find_rule(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strlen(rules[i].name) == n && memcmp(rules[i].name, name, n) == 0)
            return &rules[i];
    log_warn("no pre-tokenizer named '%.*s'; using gpt-2, so token ids may differ",
             (int)(n < 64 ? n : 64),
             name);
    return &rules[0];
}

enum err pretokenizer_create(const char *name,
                             size_t n,
                             struct pretokenizer **out,
                             struct err_info *e)
{
    struct pretokenizer *p = mem_zalloc(1, sizeof *p);
    p->rule = find_rule(name, n);
    int code;
    PCRE2_SIZE at;
    p->code = pcre2_compile((PCRE2_SPTR)p->rule->pattern,
                            PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                            &code,
                            &at,
                            NULL);
    if (!p->code) {
        free(p);
        *out = NULL;
        return err_set(e, ERR_INTERNAL, "pre-tokenizer pattern: PCRE2 error %d at %zu", code, at);
    }
    /* without the right to make code executable this fails, and the interpreter serves */
    p->jit = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    *out = p;
    return OK;
}

void pretokenizer_destroy(struct pretokenizer *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p);
}

bool pretokenizer_whole_words(const struct pretokenizer *p)
{
    return p->rule->whole_words;
}

struct pretokenize_scratch *pretokenize_scratch_create(const struct pretokenizer *p)
{
    struct pretokenize_scratch *s = mem_zalloc(1, sizeof *s);
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (p->jit)
        s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (!s->data || !s->context || (p->jit && !s->stack)) {
        pretokenize_scratch_destroy(s);
        return NULL;
    }
    /* a run of white space backtracks once over its length, so the limit may be out of the way */
    pcre2_set_match_limit(s->context, UINT32_MAX);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s;
}

void pretokenize_scratch_destroy(struct pretokenize_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

size_t pretokenize_next(const struct pretokenizer *p,
                        struct pretokenize_scratch *s,
                        const char *text,
                        size_t n,
                        size_t at)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->jit)
        rc = pcre2_jit_match(p->code, subject, n, at, PCRE2_NO_UTF_CHECK, s->data, s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(
            p->code, subject, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->context);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->data);
    if (rc >= 0 && range[1] > at)
        return range[1];
    if (rc != PCRE2_ERROR_NOMATCH && rc < 0)
        return 0;
    /* the patterns leave no character out; should one be unknown to PCRE2, it is a word */
    int len = utf8_len(text + at, n - at);
    return at + (len > 0 ? (size_t)len : 1);
}
