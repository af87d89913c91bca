#include "api/gate.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define MAX_WAITING 64u
#define N_SHARES 256u /* of those whose numbers end alike it is one */
#define HALF_LIFE_US 10e6

struct waiter {
    uint64_t who;
    bool turn;           /* it is this one's */
    struct waiter *next; /* came later */
};

struct api_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct waiter *first;
    uint32_t n_waiting;
    bool busy, closed;
    uint64_t who, since_us; /* while busy */
    struct share {
        double us; /* of work, as of at_us */
        uint64_t at_us;
    } shares[N_SHARES];
};

struct api_gate *api_gate_create(void)
{
    struct api_gate *g = mem_zalloc(1, sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    return g;
}

void api_gate_destroy(struct api_gate *g)
{
    if (!g)
        return;
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g);
}

static double had(const struct api_gate *g, uint64_t who, uint64_t now_us)
{
    const struct share *s = &g->shares[who % N_SHARES];
    return s->us * exp2(-(double)(now_us - s->at_us) / HALF_LIFE_US);
}

/* Give the turn, if nobody has it, to the one who waits and had least. */
static void pass_on(struct api_gate *g)
{
    const uint64_t now_us = clock_us();
    struct waiter *best = NULL;
    double least = 0;
    for (struct waiter *w = g->first; w && !g->busy; w = w->next) {
        const double us = had(g, w->who, now_us);
        if (!best || us < least) {
            best = w;
            least = us;
        }
    }
    if (!best)
        return;
    best->turn = g->busy = true;
    g->who = best->who;
    g->since_us = now_us;
    pthread_cond_broadcast(&g->changed);
}

static enum err check_room(const struct api_gate *g, uint64_t who, struct err_info *e)
{
    uint32_t n = 0;
    for (const struct waiter *w = g->first; w; w = w->next)
        n += w->who == who;
    if (g->closed)
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    if (g->n_waiting < MAX_WAITING && n < 4 * (MAX_WAITING - g->n_waiting))
        return OK;
    return err_set(e, ERR_QUEUE_FULL, "too many large schemas or grammars wait to be compiled");
}

static void remove_waiter(struct api_gate *g, const struct waiter *w)
{
    struct waiter **at = &g->first;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    g->n_waiting--;
}

enum err api_gate_enter(struct api_gate *g, uint64_t who, struct err_info *e)
{
    struct waiter self = {.who = who}, **at = &g->first;
    pthread_mutex_lock(&g->lock);
    enum err err = check_room(g, who, e);
    if (!err) {
        while (*at)
            at = &(*at)->next;
        *at = &self;
        g->n_waiting++;
        pass_on(g);
        while (!self.turn && !g->closed)
            pthread_cond_wait(&g->changed, &g->lock);
        remove_waiter(g, &self);
        if (!self.turn)
            err = err_set(e, ERR_DRAINING, "the server is shutting down");
    }
    pthread_mutex_unlock(&g->lock);
    return err;
}

void api_gate_leave(struct api_gate *g)
{
    pthread_mutex_lock(&g->lock);
    const uint64_t now_us = clock_us();
    g->shares[g->who % N_SHARES] =
        (struct share){had(g, g->who, now_us) + (double)(now_us - g->since_us), now_us};
    g->busy = false;
    if (!g->closed) /* else those who wait are leaving */
        pass_on(g);
    pthread_mutex_unlock(&g->lock);
}

void api_gate_close(struct api_gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->closed = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

uint32_t api_gate_waiting(struct api_gate *g)
{
    pthread_mutex_lock(&g->lock);
    const uint32_t n = g->n_waiting;
    pthread_mutex_unlock(&g->lock);
    return n;
}
