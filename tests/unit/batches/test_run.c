/* The batch thread, with workers, a device and keys that make it hard. */
#include "unit/batches/running.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- batches that are forgotten while the thread works ---------------------------------------- */

enum { N_FIRST = 40, N_POSTS = 120 };

static void *post(void *arg)
{
    const struct running *r = arg;
    for (int i = 0; i < N_POSTS; i++)
        json_decref(running_ask(r, "POST", "/v1/batches", "", 200));
    return NULL;
}

/* Each that ends is the oldest that is over, and is forgotten for the next that a worker makes. */
static void batches_are_forgotten_while_others_are_looked_after(void **state)
{
    (void)state;
    struct running r;
    pthread_t worker;
    running_make_folder(&r);
    running_put_file(&r, 0, "", (char *)"not json\n");
    for (int i = 1; i <= BATCH_MAX_JOBS; i++)
        running_put_batch(&r, i, "", 0, i <= N_FIRST ? "validating" : "completed");
    running_start(&r, NULL, 4);
    pthread_create(&worker, NULL, post, &r);
    pthread_join(worker, NULL);
    running_wait(&r, BATCH_MAX_JOBS, "", "completed", 60);
    running_stop(&r);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_forgotten_while_others_are_looked_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
