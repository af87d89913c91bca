/* A device that fails and comes back: its ops with a run of our own. */
#ifndef WEIR_TESTS_API_MORTAL_H
#define WEIR_TESTS_API_MORTAL_H

#include "backend/backend.h"

#include <stdatomic.h>

#define MORTAL_SAYS "the device has fallen off \"the bus\""

static struct backend_ops mortal;
static const struct backend_ops *immortal;
static _Atomic bool device_is_dead;
static _Atomic uint32_t n_deaths; /* steps that it failed */

static inline enum err mortal_run(struct backend *b,
                                  const struct batch *batch,
                                  float **logits,
                                  struct err_info *e)
{
    if (!atomic_load(&device_is_dead))
        return immortal->run(b, batch, logits, e);
    atomic_fetch_add(&n_deaths, 1);
    return err_set(e, ERR_INTERNAL, MORTAL_SAYS);
}

static inline enum err make_mortal(const struct model *m,
                                   const struct backend_config *cfg,
                                   struct backend **out,
                                   struct err_info *e)
{
    enum err err = cpu_backend_create(m, cfg, out, e);
    if (err)
        return err;
    immortal = (*out)->ops;
    mortal = *immortal;
    mortal.run = mortal_run;
    (*out)->ops = &mortal;
    return OK;
}

#endif
