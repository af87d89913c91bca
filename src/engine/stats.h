/* What the engine measures of itself; for engine/ only. Written by the engine thread under the
 * stats lock, copied out by any thread. */
#ifndef WEIR_ENGINE_STATS_H
#define WEIR_ENGINE_STATS_H

#include "engine/engine.h"
#include "engine/request.h"

void stats_init(struct engine_stats *s);
void hist_add(struct engine_hist *h, double value);

/* A request's first token, a later one, or, without `any`, that there was none; its vector; its
 * end. Times are in the request. */
void stats_token(struct engine_stats *s, struct request *r, uint64_t now_us, bool any);
void stats_vector(struct engine_stats *s, struct request *r, uint64_t now_us, bool any);
void stats_finished(struct engine_stats *s, const struct request *r, uint64_t now_us);

#endif
