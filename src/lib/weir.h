/* Weir inside a program: models that answer many at once, from any thread.
 *
 *      weir_open ──▶ struct weir ──weir_generate──▶ struct weir_generation ──weir_next──▶ text
 *                    a model and its memory         one answer, growing         a piece at a time
 *
 * What is generated at the same time is computed together, joins and leaves at every step, and
 * shares what prompts begin with; the same request gets the same text, whatever else runs.
 * docs/EMBEDDING.md has an example and says how to link.
 *
 * Threads: every function may be called from any thread, also for one model at once, but for what
 * its comment says. A generation has one reader at a time. The library's own threads do the work,
 * and block all signals but their own faults (SIGBUS, SIGSEGV and so on); no callback of
 * yours but the log's runs in them. The locale and the modes of floating point (fenv.h) of who
 * calls change nothing, and stay as they are. Templates and forms that nest deeply take half a MiB
 * of the caller's stack. After fork() a child must not use what its parent opened.
 *
 * Errors: a status other than WEIR_OK, with a text in *e where e is not NULL. What a caller gives
 * is checked; handles are not, and where nothing else is said pointers must not be NULL. What an
 * error leaves of outputs is not to be read, but handles are NULL then. The process is aborted
 * where small allocations fail, and never else.
 *
 * Text is UTF-8. What is given ends with a NUL; it is copied, so it may go when the call returns.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

const char *weir_version(void); /* "0.1.0" */

enum weir_status {
    WEIR_OK,
    WEIR_ERR_NOMEM,       /* no memory for what a model, options or a request want; no thread */
    WEIR_ERR_IO,          /* the operating system refused a file */
    WEIR_ERR_FORMAT,      /* the model's file is not what it claims to be */
    WEIR_ERR_UNSUPPORTED, /* neither this build nor this model does it */
    WEIR_ERR_INVALID,     /* what was given is out of range, or no UTF-8 */
    WEIR_ERR_NOT_FOUND,   /* no such device, or no plugin for it */
    WEIR_ERR_TOO_LONG,    /* prompt and answer do not fit the context, or a template its bounds */
    WEIR_ERR_BUSY,        /* too many wait already: come back later */
    WEIR_ERR_INTERNAL,    /* a bug, or a device that failed */
};

struct weir_error {
    enum weir_status status;
    char text[384]; /* one line */
};

/* Where warnings of the library go, a line each; level is 0 for errors, 1 for warnings, 2 for what
 * may interest. fn is called by any thread, also by several at once, and must not call the library.
 * NULL, and as long as this is not called: nowhere. For the whole process, before anything is
 * opened. */
void weir_set_log(void (*fn)(void *ctx, int level, const char *text), void *ctx);

/* ---- A model ---- */

struct weir; /* a model that is open */

/* What weir_options_init leaves is what `weir serve` does, where nothing else is said. */
struct weir_options {
    size_t size;               /* of this struct, as the program knows it: weir_options_init */
    const char *model;         /* GGUF file; has to be set */
    const char *device;        /* "auto", "cpu", "cuda" or "cuda:N"; NULL: auto */
    const char *kv_type;       /* "f16", "f32", "bf16" or "q8_0"; NULL: f16, for encoders f32 */
    const char *chat_template; /* Jinja, instead of the model's own; NULL: that */
    const char *cache_dir;     /* where computed prefixes outlive the process; NULL: nowhere */
    uint64_t cache_bytes;      /* that they may take there; 0: a default */
    uint64_t host_cache_bytes; /* RAM for what the KV memory has no room for; 0: none */
    uint64_t kv_bytes;         /* KV memory; 0: a default, by what the machine has */
    uint32_t n_ctx;       /* longest prompt and answer, in tokens; 0: what the model was made for */
    uint32_t n_threads;   /* 0: one a core */
    uint32_t max_running; /* generations computed at once (64), and that may wait (2048): the */
    uint32_t max_waiting; /* next after them are refused, WEIR_ERR_BUSY */
    /* Called while weights load, in the thread that opens: 0 to 1. NULL: not. */
    void (*progress)(void *ctx, double fraction);
    void *progress_ctx;
    /* Tokens guessed ahead where an answer repeats what was said, at most 7; 0: none. Faster where
     * few run and memory bounds a step; no answer differs. Not where an answer has a form; nor on
     * devices and of recurrent models, where a warning says so. */
    uint32_t draft_tokens;
};
void weir_options_init_size(struct weir_options *o, size_t size);
static inline void weir_options_init(struct weir_options *o)
{
    weir_options_init_size(o, sizeof *o);
}

/* Load a model, take all of its memory, start its threads. The file must not change while it is
 * open. Where there is a GPU, and the device may be one, the variable CUDA_MODULE_LOADING is set in
 * the environment, if it is not EAGER yet: no other thread may use that meanwhile. Errors:
 * WEIR_ERR_INVALID, WEIR_ERR_NOT_FOUND (device), WEIR_ERR_IO (model, cache_dir), WEIR_ERR_FORMAT,
 * WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOMEM, WEIR_ERR_INTERNAL (device). */
enum weir_status weir_open(const struct weir_options *o, struct weir **out, struct weir_error *e);

/* End it: generations that still run end as WEIR_CANCELLED, and their readers are woken. Those that
 * are not freed can still be read to their end and have to be freed, before or after. With the
 * model no other function may be under way, nor follow. Waits until threads have ended and memory
 * is free. NULL is fine. */
void weir_close(struct weir *w);

/* Tokens that prompt and answer may have; fewer than options want where KV memory holds no more. */
uint32_t weir_n_ctx(const struct weir *w);
uint32_t weir_n_vocab(const struct weir *w); /* tokens are below this */
uint32_t weir_n_embd(const struct weir *w);  /* values of an embedding */
bool weir_generates(const struct weir *w);   /* false: an encoder, for weir_embed alone */

/* ---- Text and tokens ---- */

/* A turn of a conversation. */
struct weir_message {
    const char *role; /* "system", "user", "assistant", or what else the model's template knows */
    const char *content;
};

/* The tokens of a text, in tokens[max], and in *n_tokens how many there are, which may be more than
 * max: then only so many were written (tokens may be NULL where max is 0). add_special: with what
 * the model wants before a text of its own, as BOS. parse_special: names of control tokens in the
 * text, as "<|im_end|>", become these; not for text that others wrote. Errors: WEIR_ERR_TOO_LONG
 * (64 MiB), WEIR_ERR_UNSUPPORTED (a byte the vocabulary does not have), WEIR_ERR_NOMEM. */
enum weir_status weir_tokenize(const struct weir *w,
                               const char *text,
                               bool add_special,
                               bool parse_special,
                               int32_t *tokens,
                               size_t max,
                               size_t *n_tokens,
                               struct weir_error *e);

/* A conversation as the model's chat template puts it, the assistant's turn begun: the same, of
 * messages[n_messages]. It is tokens, not text, because only what the template itself wrote may
 * become control tokens. Errors: WEIR_ERR_INVALID (no UTF-8; what the template refuses),
 * WEIR_ERR_UNSUPPORTED (no template, or none that can be run), those of weir_tokenize. */
enum weir_status weir_apply_template(const struct weir *w,
                                     const struct weir_message *messages,
                                     size_t n_messages,
                                     int32_t *tokens,
                                     size_t max,
                                     size_t *n_tokens,
                                     struct weir_error *e);

/* The bytes of tokens[n_tokens], in text[max], ended with a NUL where there is room, and in
 * *n_bytes how many there are, without that NUL, likewise. Maybe no UTF-8: a token may be part of a
 * character. special: control tokens too. Tokens that do not exist have no bytes. */
void weir_detokenize(const struct weir *w,
                     const int32_t *tokens,
                     size_t n_tokens,
                     bool special,
                     char *text,
                     size_t max,
                     size_t *n_bytes);

/* ---- Generating ---- */

#define WEIR_MAX_STOPS 16

/* What to generate. What weir_request_init leaves: greedy, up to the end of the context. */
struct weir_request {
    size_t size; /* of this struct, as the program knows it: weir_request_init */
    /* The prompt, one of these: a conversation, as weir_apply_template has it; text to go on with,
     * as weir_tokenize with add_special alone has it; or tokens. */
    const struct weir_message *messages; /* [n_messages] */
    size_t n_messages;
    const char *prompt;
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    uint32_t max_tokens;      /* 0: as many as the context holds */
    float temperature;        /* 0: the likeliest token always; at most 2 */
    float top_p;              /* 1: off; the fewest tokens with this mass */
    float min_p;              /* 0: off; a part of the likeliest token's probability */
    int32_t top_k;            /* 0: off */
    uint64_t seed;            /* of the random draws; equal seeds draw alike */
    const char *const *stops; /* [n_stops] texts, 64 KiB in all, that end it, cut off */
    size_t n_stops;           /* at most WEIR_MAX_STOPS */
    const char *json_schema;  /* the text is JSON that satisfies this schema, or */
    const char *grammar;      /* in the language of this GBNF grammar; at most one of them */
};
void weir_request_init_size(struct weir_request *r, size_t size);
static inline void weir_request_init(struct weir_request *r)
{
    weir_request_init_size(r, sizeof *r);
}

struct weir_generation; /* one answer; freed by its owner */

/* Begin to generate; returns when the prompt is tokens and the form is compiled, which takes a
 * second for a megabyte or more of text, and does not wait for the model. What runs is computed
 * whether or not anybody reads.
 * Errors: WEIR_ERR_INVALID, WEIR_ERR_TOO_LONG (also 64 MiB of text), WEIR_ERR_BUSY, those of
 * weir_apply_template. */
enum weir_status weir_generate(struct weir *w,
                               const struct weir_request *r,
                               struct weir_generation **out,
                               struct weir_error *e);

/* Wait for the next piece of text: whole characters, without what may yet be part of a stop text,
 * ended with a NUL (n_bytes, where not NULL: without that), to be used until the next call for
 * this generation. NULL once it has ended and all is read. */
const char *weir_next(struct weir_generation *g, size_t *n_bytes);

/* Ask it to end soon; not waited for. At any time before weir_free. */
void weir_cancel(struct weir_generation *g);

enum weir_finish {
    WEIR_STOP,      /* the model's own end, a stop text, or the form is complete */
    WEIR_LENGTH,    /* max_tokens, or the end of the context */
    WEIR_CANCELLED, /* weir_cancel, weir_close or weir_free */
    WEIR_FAILED,    /* the device did, or the model's numbers are none */
};

struct weir_result {
    enum weir_finish finish;
    uint32_t n_prompt; /* tokens: of the prompt, */
    uint32_t n_cached; /* of these, found computed, */
    uint32_t n_output; /* and generated */
};

/* Wait until it has ended; what is not read yet can be read then, too. Every generation ends
 * exactly once, and this stays what it is. Returns WEIR_OK, but where it is WEIR_FAILED why; *out
 * is set in any case. */
enum weir_status weir_result(struct weir_generation *g,
                             struct weir_result *out,
                             struct weir_error *e);

/* Free it; one that runs is cancelled first and waited for, a step or so. Nothing else may be under
 * way with it. NULL is fine. */
void weir_free(struct weir_generation *g);

/* ---- Embeddings ---- */

/* The embedding of a text, of length 1, in vector[weir_n_embd]. Waits; texts of several threads are
 * computed together. Errors: WEIR_ERR_INVALID (empty, no UTF-8, or the model has none to give),
 * WEIR_ERR_UNSUPPORTED (it has one for each token), those of weir_tokenize and weir_generate. */
enum weir_status weir_embed(struct weir *w, const char *text, float *vector, struct weir_error *e);

#ifdef __cplusplus
}
#endif

#endif
