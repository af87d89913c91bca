/* One at a time: work that takes a worker long, a grammar of many states, waits here for its turn.
 *
 * Whoever has had least of it lately goes first, so that one who floods the server with such work
 * delays others by the piece under way and no more; among equals it is the order of arrival. How
 * long somebody worked is forgotten by half every 10 seconds.
 *
 * At most 64 wait, and of these nobody holds more than four times what is left free. Who waits for
 * a client that has left goes, and its place is free. */
#ifndef WEIR_API_GATE_H
#define WEIR_API_GATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct api_gate;

struct api_gate *api_gate_create(void);
void api_gate_destroy(struct api_gate *g); /* nobody is in it; NULL is allowed */

/* Has the client left for whom it waits? Asked some times a second; takes no lock of the gate. */
typedef bool (*api_gate_left_fn)(void *ctx);

/* Wait for the turn of `who`, any number; after OK it lasts until leave. Any thread. left: NULL:
 * nobody can leave.
 * Errors: ERR_QUEUE_FULL, and *retry_s says when a turn will probably have ended; ERR_DRAINING
 * (closed); ERR_IO (the client has left). */
enum err api_gate_enter(struct api_gate *g,
                        uint64_t who,
                        api_gate_left_fn left,
                        void *ctx,
                        uint32_t *retry_s,
                        struct err_info *e) WEIR_MUST_USE;
void api_gate_leave(struct api_gate *g);

uint32_t api_gate_waiting(struct api_gate *g);

/* Those who wait, and all later ones, are refused. */
void api_gate_close(struct api_gate *g);

#endif
