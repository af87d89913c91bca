/* Text to token ids and back, as the model's own GGUF says.
 *
 * Six families: byte-level BPE ("gpt2": a pre-tokenizer's pattern cuts the text into words, merges
 * join bytes within a word; "gemma4": characters instead of bytes), SPM ("llama": greedy merging by
 * score, byte fallback), WPM ("bert": longest match), UGM ("t5": the best sum of scores), PLaMo's
 * ("plamo2": likewise, byte fallback) and RWKV's ("rwkv": longest match over bytes). Encoding takes
 * time about linear in the text, also for one word of a megabyte. BPE, SPM, PLaMo's and RWKV's give
 * back every text that they encode, if the vocabulary has all bytes, but for a U+2581 of the text,
 * which SPM and gemma4 take for a space, and a byte order mark in front, which PLaMo's drops; WPM
 * and UGM normalise it.
 *
 * Text from a user never becomes a control token: special tokens are looked for only inside pieces
 * that the caller marks as trusted. Pieces are otherwise one text: ids do not depend on where
 * piece borders fall.
 *
 * Thread: a struct tokenizer is immutable after creation; any thread may use it. */
#ifndef WEIR_TOKENIZER_TOKENIZER_H
#define WEIR_TOKENIZER_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t token_id;
#define TOKEN_NONE (-1)

struct tokenizer;

/* A growable run of ids. Zero-initialise; token_list_deinit frees. */
struct token_list {
    token_id *ids;
    size_t n;
    size_t cap;
};
/* May abort where there is no room: of as many ids as a client likes, ask for it first. */
void token_list_add(struct token_list *l, token_id id);
/* Room for n more. Errors: ERR_NOMEM. */
enum err token_list_room(struct token_list *l, size_t n, struct err_info *e) WEIR_MUST_USE;
void token_list_deinit(struct token_list *l);

/* Read the vocabulary from the file; *g must outlive it. An unknown pre-tokenizer name is a
 * warning in the log and the default. Errors: ERR_FORMAT (missing or malformed fields),
 * ERR_UNSUPPORTED (another tokenizer model), ERR_NOMEM. */
enum err tokenizer_create(const struct gguf *g,
                          struct tokenizer **out,
                          struct err_info *e) WEIR_MUST_USE;
void tokenizer_destroy(struct tokenizer *t);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
token_id tokenizer_bos(const struct tokenizer *t); /* TOKEN_NONE if the model has none */
token_id tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t); /* the model wants BOS before a prompt */

/* What marks the parts of a text with a gap (fill in the middle), for models taught so. */
enum fim_part {
    FIM_PREFIX, /* what comes before the gap follows */
    FIM_SUFFIX, /* what comes behind it follows */
    FIM_MIDDLE, /* what belongs into it follows */
    FIM_REPO,   /* a name of the whole, and other files */
    FIM_FILE,   /* a file's name, and the file */
    N_FIM_PARTS
};
token_id tokenizer_fim(const struct tokenizer *t, enum fim_part part); /* or TOKEN_NONE */

/* Every id that ends a turn: eos, eot, eom and the well-known end texts (<|im_end|>, <|eot_id|>,
 * <end_of_turn>, <|endoftext|>, ...) that the vocabulary holds as control tokens. */
bool tokenizer_is_eog(const struct tokenizer *t, token_id id);
bool tokenizer_is_control(const struct tokenizer *t, token_id id);
/* May it stand in a text: neither control, unknown nor unused, nor out of range. */
bool tokenizer_is_text(const struct tokenizer *t, token_id id);

/* What the file says must never come in an answer: ids[*n], the tokenizer's. */
const token_id *tokenizer_suppressed(const struct tokenizer *t, uint32_t *n);

/* The id whose text is exactly s[0..n), or TOKEN_NONE. */
token_id tokenizer_find(const struct tokenizer *t, const char *s, size_t n);

/* A part of the text to encode. */
struct text_piece {
    const char *text; /* any bytes; invalid UTF-8 is encoded byte by byte */
    size_t n_bytes;
    bool parse_special; /* special tokens inside this piece become control tokens */
};

/* Append the ids of the pieces, as one text, to *out. No BOS or EOS is added. A byte that a BPE
 * vocabulary cannot express is left out.
 * Errors: ERR_NOMEM, ERR_UNSUPPORTED (what an SPM or a WPM vocabulary cannot, without an unknown
 * token).
 */
enum err tokenizer_encode(const struct tokenizer *t,
                          const struct text_piece *pieces,
                          size_t n_pieces,
                          struct token_list *out,
                          struct err_info *e) WEIR_MUST_USE;

/* What the model wants around a text of its own: BOS before it; EOS or SEP behind it; between two
 * that are compared, either or both. Appended as far as the model's flags say. */
void tokenizer_add_begin(const struct tokenizer *t, struct token_list *out);
void tokenizer_add_between(const struct tokenizer *t, struct token_list *out);
void tokenizer_add_end(const struct tokenizer *t, struct token_list *out);

/* The raw bytes that token `id` stands for, inside the tokenizer's memory: maybe part of a
 * character, empty for control tokens (their text with `special`) and for ids out of range. Never
 * allocates: the engine calls it in a step. SPM: a leading space is part of the bytes. */
const char *tokenizer_bytes(const struct tokenizer *t, token_id id, bool special, size_t *n_bytes);

/* Those that ids[i] adds to the text of ids: at the start of an SPM or UGM text, and behind what is
 * special, without the space that encoding put there. */
const char *tokenizer_bytes_at(
    const struct tokenizer *t, const token_id *ids, size_t i, bool special, size_t *n_bytes);

/* Append those of ids[0..n), maybe no UTF-8. With SPM decode(encode(x)) == x where x has no
 * U+2581. */
void tokenizer_decode(
    const struct tokenizer *t, const token_id *ids, size_t n, bool special, struct buf *out);

#endif
