/* The vocabulary as the GGUF file declares it, checked: texts, types, scores, special ids.
 *
 * Token texts are views of the file. `bytes` is what a token stands for in text:
 *
 *   BPE   normal tokens: each character of the text is one byte, by the byte map below
 *   SPM, UGM, WPM, and BPE of raw text
 *         normal and user-defined tokens: U+2581 is a space; byte tokens "<0xAB>" are that byte
 *   PLAMO normal and user-defined tokens: the text; byte tokens as above
 *   RWKV  these: the text, in which \t, \n, \r and \x1f are single bytes, and a backslash before
 *         any other byte is none
 *   the others (control, unknown, BPE's user-defined): the text itself
 *
 * Thread: immutable after vocab_read. */
#ifndef WEIR_TOKENIZER_VOCAB_H
#define WEIR_TOKENIZER_VOCAB_H

#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

/* No real token comes near; it bounds the work per merge under a hostile vocabulary. */
#define VOCAB_MAX_TOKEN_BYTES 65535

enum vocab_family {
    VOCAB_BPE,   /* tokenizer.ggml.model "gpt2", or "gemma4" */
    VOCAB_SPM,   /* "llama" */
    VOCAB_WPM,   /* "bert" */
    VOCAB_UGM,   /* "t5" */
    VOCAB_PLAMO, /* "plamo2" */
    VOCAB_RWKV,  /* "rwkv" */
};

/* Numbered as in the file. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

struct vocab_token {
    const char *text;
    const char *bytes;
    uint32_t text_len;
    uint32_t n_bytes;
    float score; /* SPM, UGM, PLAMO; finite */
    uint8_t type;
    bool eog;
    bool suppressed;                /* never comes in an answer */
    bool strips_left, strips_right; /* as a special token, takes the white space beside it along */
    bool plain; /* merging may produce it: stands for text, and is neither control nor byte token */
};

/* Open-addressed table from a string to the id that has it as text (or as bytes). The hash is
 * seeded at random, so that a file cannot choose tokens that collide. */
struct vocab_index {
    struct vocab_slot {
        uint32_t tag; /* high half of the hash */
        token_id id;  /* TOKEN_NONE: free */
    } * slots;
    size_t mask;
    uint64_t seed;
    bool by_bytes;
};

struct vocab {
    enum vocab_family family;
    struct vocab_token *tokens;
    uint32_t n;
    uint32_t max_text; /* bytes of the longest text of a plain token */
    token_id bos, eos, unk, sep;
    token_id fim[N_FIM_PARTS]; /* TOKEN_NONE: the model has none */
    bool add_bos, add_eos, add_sep, add_space_prefix;
    bool remove_extra_spaces;            /* UGM */
    bool lowercase, strip_accents;       /* WPM */
    const struct pretokenize_rule *rule; /* BPE */
    token_id byte_ids[256];              /* TOKEN_NONE where the vocabulary cannot express a byte */
    struct vocab_index by_text;
    char *decoded;        /* where `bytes` differ from the text */
    token_id *suppressed; /* [n_suppressed] those that are, each once */
    uint32_t n_suppressed;
};

/* Read and check. On failure *v
 * may be partly filled; vocab_deinit serves both. Errors: as tokenizer_create. */
enum err vocab_read(const struct gguf *g, struct vocab *v, struct err_info *e) WEIR_MUST_USE;

/* Its part in vocab_special.c: which tokens are special and how, and the flags. Texts, types and
 * by_text are there. */
enum err vocab_read_special(const struct gguf *g,
                            struct vocab *v,
                            struct err_info *e) WEIR_MUST_USE;
/* Its part in vocab_fim.c. */
enum err vocab_read_fim(const struct gguf *g, struct vocab *v, struct err_info *e) WEIR_MUST_USE;
void vocab_deinit(struct vocab *v);

/* Room for n entries, n > 0; false when memory is out. */
bool vocab_index_init(struct vocab_index *x, size_t n, bool by_bytes);
void vocab_index_add(const struct vocab *v, struct vocab_index *x, token_id id); /* last wins */
token_id vocab_index_find(const struct vocab *v,
                          const struct vocab_index *x,
                          const char *s,
                          size_t n);

/* A key that must be an array of `kind` (I32 accepts U32). Absent: *out = NULL. */
enum err vocab_array(const struct gguf *g,
                     const char *key,
                     enum gguf_kind kind,
                     const struct gguf_kv **out,
                     struct err_info *e) WEIR_MUST_USE;

/* The byte map of byte-level BPE: printable Latin-1 stands for itself, the other bytes for U+0100
 * and up, in order. bytemap_decode yields -1 for a character outside the map. */
void bytemap_encode(uint8_t byte, char out[2], size_t *n);
int bytemap_decode(const char *s, size_t n_char);

#endif
