/* Two questions asked at once, each by a thread of its own; the answers stream as they come.
 *
 *      cc chat.c $(pkg-config --cflags --libs weir) -o chat
 *      ./chat model.gguf 'What is 37 + 48?' 'What is the capital of France?' */
#include <pthread.h>
#include <stdio.h>
#include <weir.h>

struct question {
    struct weir *model;
    const char *text;
    int number;
    enum weir_status status;
};

static void *ask(void *arg)
{
    struct question *q = (struct question *)arg;
    struct weir_message messages[1];
    struct weir_request request;
    struct weir_generation *answer;
    struct weir_result result;
    struct weir_error e;
    const char *piece;

    messages[0].role = "user";
    messages[0].content = q->text;
    weir_request_init(&request);
    request.messages = messages;
    request.n_messages = 1;
    q->status = weir_generate(q->model, &request, &answer, &e);
    if (q->status == WEIR_OK) {
        while ((piece = weir_next(answer, NULL)) != NULL)
            printf("%d: %s\n", q->number, piece);
        q->status = weir_result(answer, &result, &e);
        weir_free(answer);
    }
    if (q->status != WEIR_OK)
        fprintf(stderr, "question %d: %s\n", q->number, e.text);
    return NULL;
}

int main(int argc, char **argv)
{
    struct weir_options options;
    struct question questions[2];
    pthread_t threads[2];
    struct weir *model;
    struct weir_error e;
    int i;

    if (argc != 4) {
        fprintf(stderr, "usage: chat MODEL QUESTION QUESTION\n");
        return 2;
    }
    weir_options_init(&options);
    options.model = argv[1];
    if (weir_open(&options, &model, &e) != WEIR_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    for (i = 0; i < 2; i++) {
        questions[i].model = model;
        questions[i].text = argv[2 + i];
        questions[i].number = i + 1;
        pthread_create(&threads[i], NULL, ask, &questions[i]);
    }
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    weir_close(model);
    return questions[0].status != WEIR_OK || questions[1].status != WEIR_OK;
}
