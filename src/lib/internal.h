/* Behind weir.h.
 *
 *      readers, any threads          events thread                     engine thread
 *      weir_next ◀── text, news ──── take_news ◀── engine_next_event ◀──
 *
 * The engine's events have one consumer, so a thread takes them for all: it turns tokens into text,
 * appends it to the generation's and wakes its reader. When a request has ended, what is asked for
 * later is copied and the request destroyed: so a generation may outlive its model, and all that it
 * shares with others then is the lock. */
#ifndef WEIR_LIB_INTERNAL_H
#define WEIR_LIB_INTERNAL_H

#include "base/err.h"
#include "base/utf8.h"
#include "chat/encode.h"
#include "engine/engine.h"
#include "lib/weir.h"

#include <fenv.h>
#include <locale.h>
#include <pthread.h>

#define LIB_MAX_TEXT_BYTES ((size_t)64 << 20)

struct weir {
    struct model *model;
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct engine *engine;
    struct grammar_cache *grammars;
    pthread_t events; /* the thread */
    bool has_events;
    int stop_fd; /* eventfd: readable when that is to end */

    pthread_mutex_t lock; /* of what follows, and of all generations */
    size_t n_generations; /* not freed yet */
    bool closed;          /* then only these hold it, and nothing above is there any more */
};

struct weir_generation {
    struct weir *w;
    struct request *request; /* NULL: it has ended */
    pthread_cond_t news;
    struct buf text; /* not taken by the reader yet */
    struct weir_result result;
    struct err_info error; /* of WEIR_FAILED */
    float *vector;         /* [n_embd], if that is what it is for */
    /* the events thread's: how far the request's tokens became text */
    struct utf8_stream utf8;
    uint32_t token_at, token_bytes, n_bytes; /* so many of this one, so many of all */
    /* the reader's, without the lock */
    struct buf piece;
};

/* weir.c. Numbers are read and written with a point, whatever the program's language, and computed
 * as in any program, however it rounds or traps: by this thread, until it is given back what it
 * had. */
struct lib_own {
    locale_t locale;
    fenv_t env;
};
struct lib_own lib_enter(void);
void lib_leave(const struct lib_own *own);
/* Fill *e, if not NULL. */
enum weir_status lib_status(enum err err, const struct err_info *from, struct weir_error *e);
/* The defaults in own[n], as whoever has room for `size` bytes knows them. */
void lib_init_options(void *to, size_t size, const void *own, size_t n);
/* Options of `size` bytes, as whoever made them knows them, over the defaults in own[n]. */
enum err lib_take_options(void *own, size_t n, const void *given, size_t size, struct err_info *e)
    WEIR_MUST_USE;

/* Free the shell, if it is closed and nobody holds it; with the lock, which it lets go. */
void lib_release(struct weir *w);

/* text.c. Appended to *ids. */
enum err lib_encode(const struct weir *w,
                    const char *text,
                    bool add_special,
                    bool parse_special,
                    struct token_list *ids,
                    struct err_info *e) WEIR_MUST_USE;
enum err lib_encode_chat(const struct weir *w,
                         const struct weir_message *messages,
                         size_t n_messages,
                         struct token_list *ids,
                         struct err_info *e) WEIR_MUST_USE;

/* generate.c */
void *lib_events_main(void *weir);

#endif
