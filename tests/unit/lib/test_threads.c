/* The library and its threads: answers are the same alone and beside others, every generation ends
 * once, however it ends, and signals are for the threads of the program. */
#include "harness.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N_THREADS 8

struct asker {
    struct weir *w;
    uint32_t number;
    char alone[MAX_TEXT], beside[MAX_TEXT];
};

/* A different one for each number, all with the same beginning. */
static void ask(struct asker *a, char *text)
{
    char question[64];
    struct weir_request q;
    snprintf(question, sizeof question, "Count from %u: one two three", a->number);
    weir_request_init(&q);
    q.prompt = question;
    q.max_tokens = 40;
    q.temperature = 1.5f;
    q.seed = a->number;
    answer(a->w, &q, text);
}

static void *ask_beside(void *arg)
{
    struct asker *a = arg;
    for (int i = 0; i < 3; i++) {
        ask(a, a->beside);
        if (strcmp(a->alone, a->beside) != 0)
            break;
    }
    return NULL;
}

static void test_the_same_alone_and_beside_others(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 64);
    struct asker *askers = calloc(N_THREADS, sizeof *askers);
    pthread_t threads[N_THREADS];
    for (uint32_t i = 0; i < N_THREADS; i++) {
        askers[i].w = w;
        askers[i].number = i;
        ask(&askers[i], askers[i].alone);
    }
    assert_string_not_equal(askers[0].alone, askers[1].alone);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_beside, &askers[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(askers[i].alone, askers[i].beside);
    }
    free(askers);
    weir_close(w);
}

static void test_cancelled_by_another_thread(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    struct weir_generation *g = begin_long(w);
    struct weir_result r;
    char text[MAX_TEXT];
    assert_non_null(weir_next(g, NULL));
    weir_cancel(g);
    weir_cancel(g);
    read_all(g, text);
    assert_null(weir_next(g, NULL));
    assert_int_equal(weir_result(g, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    assert_true(r.n_output > 0 && r.n_output < 1500);
    weir_cancel(g); /* too late, and no matter */
    assert_int_equal(weir_result(g, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    weir_free(g);
    weir_free(begin_long(w)); /* while it runs */
    weir_close(w);
}

struct reader {
    struct weir_generation *g;
    atomic_bool *go_on; /* NULL: at once */
    atomic_uint *n_reading;
    char text[MAX_TEXT];
    struct weir_result result;
};

static void *read_to_the_end(void *arg)
{
    struct reader *r = arg;
    const char *first = weir_next(r->g, NULL);
    atomic_fetch_add(r->n_reading, 1);
    while (r->go_on && !atomic_load(r->go_on))
        sched_yield();
    if (first)
        read_all(r->g, r->text);
    (void)weir_result(r->g, &r->result, NULL);
    weir_free(r->g);
    return NULL;
}

/* Of those that run some are being read, others will be when the model is no more. */
static void test_closed_under_its_readers(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    atomic_uint n_reading = 0;
    atomic_bool go_on = false;
    struct reader *readers = calloc(N_THREADS, sizeof *readers);
    pthread_t threads[N_THREADS];
    struct weir_generation *unread = begin_long(w), *waits = NULL;
    for (int i = 0; i < 3; i++) {
        readers[i] = (struct reader){
            .g = begin_long(w), .go_on = i == 0 ? &go_on : NULL, .n_reading = &n_reading};
        assert_int_equal(pthread_create(&threads[i], NULL, read_to_the_end, &readers[i]), 0);
    }
    waits = begin_long(w); /* has never run */
    while (atomic_load(&n_reading) < 3)
        sched_yield();
    weir_close(w);
    atomic_store(&go_on, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].result.finish, WEIR_CANCELLED);
    }
    char text[MAX_TEXT];
    struct weir_result r;
    assert_true(read_all(unread, text) > 0);
    weir_cancel(unread);
    assert_int_equal(weir_result(unread, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    assert_null(weir_next(waits, NULL));
    assert_int_equal(weir_result(waits, &r, NULL), WEIR_OK);
    assert_int_equal(r.finish, WEIR_CANCELLED);
    weir_free(waits);
    weir_free(unread);
    free(readers);
}

/* Of all threads but the program's own. */
static void test_signals_are_for_the_program(void **state)
{
    (void)state;
    struct weir *w = open_model(NANO, 4, 4);
    struct weir_generation *g = begin_long(w); /* there is a thread for masks then */
    char path[300], line[256];
    int n_threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *d; (d = readdir(tasks)) != NULL;) {
        unsigned long long blocked = 0;
        if (d->d_name[0] == '.' || atoi(d->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        if (f)
            fclose(f);
        assert_true(blocked >> (SIGINT - 1) & 1 && blocked >> (SIGUSR1 - 1) & 1);
        n_threads++;
    }
    closedir(tasks);
    assert_true(n_threads >= 4); /* engine, worker, masks, events */
    weir_free(g);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_alone_and_beside_others),
        cmocka_unit_test(test_cancelled_by_another_thread),
        cmocka_unit_test(test_closed_under_its_readers),
        cmocka_unit_test(test_signals_are_for_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
