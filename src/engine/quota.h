/* How much of the engine's room each tenant takes, so that none fills the queue and all others are
 * turned away at the door: who has some already may have four times what it leaves free.
 *
 *      one greedy tenant      4/5 of the room, 1/5 stays free
 *      two                    4/9 each, 1/9 stays free
 *      n                      4/(4n+1) each: somebody new finds a place
 *
 * Tenant 0 stands for everybody who has no name, and is bounded by the room alone. (Choudhury and
 * Hahne, "Dynamic queue length thresholds", 1998.) The caller locks. Allocates: in quota_init only.
 */
#ifndef WEIR_ENGINE_QUOTA_H
#define WEIR_ENGINE_QUOTA_H

#include "base/err.h"

#include <stdint.h>

struct quota {
    struct quota_use {
        uint32_t tenant, n;
    } * uses; /* [n_uses] of those who hold something */
    uint32_t n_uses;
    uint32_t n_all;
    uint32_t room;
};

enum err quota_init(struct quota *q, uint32_t room, struct err_info *e) WEIR_MUST_USE;
void quota_deinit(struct quota *q);

/* Take n places, 0 < n <= room. Errors: ERR_QUEUE_FULL, of all or of the tenant's share. */
enum err quota_take(struct quota *q, uint32_t tenant, uint32_t n, struct err_info *e) WEIR_MUST_USE;
void quota_give(struct quota *q, uint32_t tenant); /* one place back */

#endif
