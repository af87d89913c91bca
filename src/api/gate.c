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
#define LOOK_MS 100      /* how often those who wait look whether their client has left */
#define NEWEST_TURN 0.25 /* its part in the usual length of a turn */
#define MAX_RETRY_S 60u

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
    double turn_us;         /* how long one usually lasts; 0: there was none */
    struct share {
        double us; /* of work, as of at_us */
        uint64_t at_us;
    } shares[N_SHARES];
};

struct api_gate *api_gate_create(void)
{
    struct api_gate *g = mem_zalloc(1, sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    clock_cond_init(&g->changed);
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

/* A turn that came too late. */
static void give_back(struct api_gate *g, bool turn)
{
    if (!turn)
        return;
    g->busy = false;
    if (!g->closed)
        pass_on(g);
}

/* Until the turn under way will probably have ended, and with it a place is free. */
static uint32_t seconds_of_turn(const struct api_gate *g)
{
    const double now_us = g->busy ? (double)(clock_us() - g->since_us) : 0;
    const double left_us = g->turn_us > now_us ? g->turn_us - now_us : g->turn_us;
    const double s = ceil(left_us * 1e-6);
    return s < 1 ? 1 : s > MAX_RETRY_S ? MAX_RETRY_S : (uint32_t)s;
}

/* Until something has changed, or it is time to look again. */
static void wait_a_while(struct api_gate *g)
{
    const struct timespec until = clock_spec(clock_us() + LOOK_MS * 1000);
    pthread_cond_timedwait(&g->changed, &g->lock, &until);
}

enum err api_gate_enter(struct api_gate *g,
                        uint64_t who,
                        api_gate_left_fn left,
                        void *ctx,
                        uint32_t *retry_s,
                        struct err_info *e)
{
    struct waiter self = {.who = who}, **at = &g->first;
    *retry_s = 0;
    pthread_mutex_lock(&g->lock);
    enum err err = check_room(g, who, e);
    if (err == ERR_QUEUE_FULL)
        *retry_s = seconds_of_turn(g);
    if (!err) {
        while (*at)
            at = &(*at)->next;
        *at = &self;
        g->n_waiting++;
        pass_on(g);
        while (!self.turn && !g->closed && !(left && left(ctx)))
            wait_a_while(g);
        remove_waiter(g, &self);
        if (left && left(ctx)) {
            err = err_set(e, ERR_IO, "the client has left");
            give_back(g, self.turn);
        } else if (!self.turn) {
            err = err_set(e, ERR_DRAINING, "the server is shutting down");
        }
    }
    pthread_mutex_unlock(&g->lock);
    return err;
}

void api_gate_leave(struct api_gate *g)
{
    pthread_mutex_lock(&g->lock);
    const uint64_t now_us = clock_us();
    const double us = (double)(now_us - g->since_us);
    g->shares[g->who % N_SHARES] = (struct share){had(g, g->who, now_us) + us, now_us};
    g->turn_us += (us - g->turn_us) * (g->turn_us > 0 ? NEWEST_TURN : 1);
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
