/* weir run: one answer, or an interactive chat, in this process. */
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "chat/builtin.h"
#include "chat/encode.h"
#include "cli/cli.h"
#include "cli/model_options.h"
#include "engine/engine.h"

#include <editline/readline.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define KEY_RAW 256
#define KEY_SEED 257
#define KEY_TEMPERATURE 258
#define KEY_GRAMMAR 259
#define KEY_SCHEMA 260
#define KEY_DRAFT 261
#define HISTORY_FILE ".weir_history"

struct options {
    struct cli_model model;
    const char *prompt, *system, *grammar, *schema;
    bool raw, has_seed;
    struct request_params params;
    struct engine_config engine;
};

static const struct argp_option options[] = {
    CLI_MODEL_OPTIONS("f16"),
    CLI_CONTEXT_OPTION("longest conversation in tokens " CLI_CONTEXT_DEFAULT),
    {"prompt", 'p', "TEXT", 0, "answer this and exit; without it: chat, or read a pipe", 0},
    {"system", 's', "TEXT", 0, "system message", 0},
    {"max-tokens", 'n', "N", 0, "longest answer (default: to the end of the context)", 0},
    {"temperature", KEY_TEMPERATURE, "T", 0, "0 to 2; 0 always takes the likeliest (default 0)", 0},
    {"seed", KEY_SEED, "N", 0, "of the random draws, 0 to 2^63 - 1 (default: random)", 0},
    {"grammar-file", KEY_GRAMMAR, "FILE", 0, "answers in the language of this GBNF grammar", 0},
    {"json-schema", KEY_SCHEMA, "FILE", 0, "answers in JSON that satisfies this schema", 0},
    {"draft-tokens", KEY_DRAFT, "N", 0, CLI_DRAFT_DOC, 0},
    {"raw", KEY_RAW, 0, 0, "continue the prompt as plain text, without the chat template", 0},
    {0},
};

static const char doc[] =
    "Ask the model. With a terminal and no prompt: an interactive chat (history with the arrow "
    "keys, Ctrl-C ends an answer, Ctrl-D the chat)."
    "\vExamples:\n"
    "  weir run\n"
    "  weir run -p 'What is 2 + 3?'\n"
    "  echo 'Repeat: hello' | weir run\n"
    "  weir run -m model.gguf --raw -n 32 -p 'Once upon a time'";

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct options *o = s->input;
    switch (key) {
    case 'p':
        o->prompt = arg;
        return 0;
    case 's':
        o->system = arg;
        return 0;
    case 'n':
        o->params.max_tokens = (uint32_t)cli_number(s, "--max-tokens", arg, 1, 1 << 26);
        return 0;
    case KEY_SEED:
        o->params.sample.seed = cli_number(s, "--seed", arg, 0, INT64_MAX);
        o->has_seed = true;
        return 0;
    case KEY_TEMPERATURE:
        o->params.sample.temperature = (float)cli_real(s, "--temperature", arg, 0.0, 2.0);
        return 0;
    case KEY_GRAMMAR:
        o->grammar = arg;
        return 0;
    case KEY_SCHEMA:
        o->schema = arg;
        return 0;
    case KEY_DRAFT:
        o->engine.n_draft = (uint32_t)cli_number(s, "--draft-tokens", arg, 0, ENGINE_MAX_DRAFT);
        return 0;
    case KEY_RAW:
        o->raw = true;
        return 0;
    case ARGP_KEY_END:
        if (o->grammar && o->schema)
            argp_error(s, "--grammar-file and --json-schema exclude each other");
        if (!o->prompt && strcmp(o->grammar ? o->grammar : o->schema ? o->schema : "", "-") == 0)
            argp_error(s, "the form of the answer is read from standard input: give the --prompt");
        if (o->raw && o->system)
            argp_error(s, "--raw and --system exclude each other: plain text has no messages");
        return 0;
    default:
        return cli_model_option(key, arg, s, &o->model);
    }
}

/* --- one conversation ------------------------------------------------------------------------ */

struct session {
    const struct options *o;
    struct model *model;
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct engine *engine;
    struct grammar *grammar;       /* or NULL */
    struct chat_message *messages; /* contents owned */
    size_t n_messages, cap_messages;
    bool chatting;
    bool cut; /* the last answer was interrupted */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

static void add_message(struct session *s, const char *role, const char *text, size_t len)
{
    if (s->n_messages == s->cap_messages) {
        s->cap_messages = s->cap_messages ? s->cap_messages * 2 : 8;
        s->messages = mem_realloc(s->messages, s->cap_messages * sizeof *s->messages);
    }
    char *copy = mem_alloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    s->messages[s->n_messages++] = (struct chat_message){role, strlen(role), copy, len};
}

static void drop_last_message(struct session *s)
{
    free((char *)s->messages[--s->n_messages].content);
}

/* The whole conversation as token ids, the assistant's turn opened. */
static enum err encode_prompt(struct session *s, struct token_list *ids, struct err_info *e)
{
    const struct chat_message *last = &s->messages[s->n_messages - 1];
    if (!s->o->raw)
        return chat_encode_plain(s->template, s->tokenizer, s->messages, s->n_messages, ids, e);
    tokenizer_add_begin(s->tokenizer, ids);
    struct text_piece piece = {last->content, last->content_len, false};
    return tokenizer_encode(s->tokenizer, &piece, 1, ids, e);
}

/* Print what the request has produced since *n_done tokens; collect it in *answer. */
static void print_new(const struct session *s,
                      const struct request *r,
                      uint32_t *n_done,
                      struct utf8_stream *utf8,
                      struct buf *answer)
{
    const struct request_token *out = request_out(r);
    size_t shown = answer->len;
    for (; *n_done < request_n_out(r); ++*n_done) {
        size_t n;
        const char *bytes = tokenizer_bytes(s->tokenizer, out[*n_done].id, false, &n);
        utf8_feed(utf8, bytes, n, false, answer);
    }
    if (request_finish(r) != FINISH_NONE)
        utf8_feed(utf8, "", 0, true, answer);
    if (answer->len > shown)
        fwrite(answer->data + shown, 1, answer->len - shown, stdout);
    fflush(stdout);
}

/* Run one request to its end, printing as it comes. */
static enum err stream_answer(struct session *s,
                              struct request *r,
                              struct buf *answer,
                              struct err_info *e)
{
    struct utf8_stream utf8 = {{0}, 0};
    uint32_t n_done = 0;
    bool cancelled = false;
    enum err err = engine_submit(s->engine, r, e);
    if (err)
        return err;
    do {
        struct pollfd p = {.fd = engine_event_fd(s->engine), .events = POLLIN};
        poll(&p, 1, 1000); /* whatever it says, the engine knows what there is */
        if (interrupted && !cancelled) {
            cancelled = true;
            engine_cancel(s->engine, r);
        }
        while (engine_next_event(s->engine))
            print_new(s, r, &n_done, &utf8, answer);
    } while (request_finish(r) == FINISH_NONE);
    if (request_finish(r) == FINISH_ERROR) {
        *e = *request_error(r);
        return e->code;
    }
    if (request_finish(r) == FINISH_LENGTH && isatty(STDOUT_FILENO))
        fputs(" [length]", stdout);
    s->cut = cancelled;
    fputc('\n', stdout);
    return OK;
}

/* Answer `text` in the conversation so far; on failure the conversation is as before. */
static enum err answer(struct session *s, const char *text, size_t len, struct err_info *e)
{
    struct token_list ids = {0};
    struct request *r = NULL;
    struct buf out = {0};
    if (!utf8_valid(text, len))
        return err_set(e, ERR_INVALID, "the prompt is not valid UTF-8 text");
    add_message(s, "user", text, len);
    enum err err = encode_prompt(s, &ids, e);
    struct request_params params = s->o->params;
    params.grammar = s->grammar;
    uint32_t n_ctx = engine_n_ctx(s->engine);
    if (s->chatting && ids.n < n_ctx && params.max_tokens > n_ctx - ids.n)
        params.max_tokens = 0; /* near the end of a chat: as many as still fit */
    if (!err)
        err = request_create(s->engine, &params, ids.ids, (uint32_t)ids.n, NULL, &r, e);
    interrupted = 0;
    if (!err)
        err = stream_answer(s, r, &out, e);
    if (err)
        drop_last_message(s);
    else
        add_message(s, "assistant", out.len ? out.data : "", out.len);
    request_destroy(r);
    token_list_deinit(&ids);
    buf_deinit(&out);
    return err;
}

/* In the C locale libedit drops what is no ASCII. Numbers keep their point. */
static void read_utf8(void)
{
    (void)setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}

/* A Ctrl-D typed ahead, while the model loads or answers, reaches libedit as a NUL, for which it
 * takes the next key as it is: no later Ctrl-D would end the chat. Its own keys are bound anew
 * before each line. */
static int end_at_nul(void)
{
    return rl_parse_and_bind("bind ^@ ed-end-of-file");
}

static int converse(struct session *s)
{
    struct err_info e;
    read_utf8();
    s->chatting = true;
    char path[4096] = "";
    const char *home = getenv("HOME");
    if (home)
        snprintf(path, sizeof path, "%s/%s", home, HISTORY_FILE);
    using_history();
    rl_pre_input_hook = end_at_nul;
    if (path[0])
        read_history(path);
    for (;;) {
        interrupted = 0;
        char *line = readline("> ");
        if (!line)
            putchar('\n');
        if (!line && !interrupted)
            break; /* Ctrl-D; a Ctrl-C only starts a new line */
        if (line && line[0] != '\0') {
            add_history(line);
            if (answer(s, line, strlen(line), &e) != OK)
                cli_fail("run", &e);
        }
        free(line);
    }
    if (path[0])
        write_history(path);
    return EXIT_DONE;
}

static int answer_pipe(struct session *s)
{
    struct err_info e;
    char *text;
    size_t n;
    if (cli_read_file("-", SIZE_MAX, &text, &n, &e) != OK)
        return cli_fail("run", &e);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    enum err err = answer(s, text, n, &e);
    free(text);
    return err ? cli_fail("run", &e) : s->cut ? EXIT_FAILED : EXIT_DONE;
}

/* The model's own, or ChatML, as weir serve has it. */
static struct chat_template *make_template(const struct session *s, struct gguf_str own)
{
    const char *chatml = chat_builtin_source("chatml");
    if (own.len > 0)
        return chat_template_create(own.data, own.len);
    if (!s->o->raw)
        log_warn("the model has no chat template: chats use ChatML");
    return chat_template_create(chatml, strlen(chatml));
}

/* The form that answers must have, from a file. */
static enum err read_grammar(struct session *s, struct err_info *e)
{
    const char *path = s->o->grammar ? s->o->grammar : s->o->schema;
    const struct grammar_vocab *vocab;
    char *text;
    size_t n;
    enum err err;
    if (!path)
        return OK;
    if ((err = engine_vocab(s->engine, &vocab, e)) ||
        (err = cli_read_file(path, SIZE_MAX, &text, &n, e)))
        return err;
    struct grammar_builder *b = grammar_builder_create(path);
    grammar_node root =
        s->o->grammar ? grammar_gbnf(b, text, n) : grammar_json_schema_text(b, text, n);
    err = grammar_compile(b, root, vocab, &s->grammar, e);
    grammar_builder_destroy(b);
    free(text);
    return err;
}

static enum err open_session(struct session *s, struct err_info *e)
{
    struct gguf_str source = {NULL, 0};
    const char *path = cli_model_path(s->o->model.path, e);
    if (!path)
        return e->code;
    enum err err;
    if ((err = model_load(path, &s->model, e)) || (err = model_must_generate(s->model, e)) ||
        (err = model_set_context(s->model, s->o->engine.n_ctx, e)) ||
        (err = tokenizer_create(s->model->gguf, &s->tokenizer, e)) ||
        (err = gguf_get_str(s->model->gguf, "tokenizer.chat_template", &source, e)) ||
        (err = engine_create(s->model, s->tokenizer, &s->o->engine, &s->engine, e)) ||
        (err = read_grammar(s, e)))
        return err;
    model_drop_made(s->model);
    s->template = make_template(s, source);
    if (s->o->system && !utf8_valid(s->o->system, strlen(s->o->system)))
        return err_set(e, ERR_INVALID, "the system message is not valid UTF-8 text");
    if (s->o->system)
        add_message(s, "system", s->o->system, strlen(s->o->system));
    return OK;
}

static void close_session(struct session *s)
{
    grammar_release(s->grammar);
    engine_destroy(s->engine);
    chat_template_destroy(s->template);
    tokenizer_destroy(s->tokenizer);
    model_destroy(s->model);
    while (s->n_messages > 0)
        drop_last_message(s);
    free(s->messages);
}

int cmd_run(int argc, char **argv)
{
    const struct argp argp = {.options = options, .parser = parse_option, .doc = doc};
    struct options o = {.model = cli_model_default(KV_F16),
                        .params = request_params_default(),
                        .engine = engine_config_default()};
    struct session s = {.o = &o};
    struct err_info e = {0};
    int status;
    o.params.sample.temperature = 0.0f;
    o.engine.max_running = 1;
    o.engine.progress = cli_progress;
    o.engine.progress_ctx = "loading";
    cli_parse(&argp, argc, argv, &o);
    cli_model_configure(&o.model, &o.engine);
    if (!o.has_seed && getrandom(&o.params.sample.seed, sizeof o.params.sample.seed, 0) < 0)
        o.params.sample.seed = (uint64_t)getpid();
    log_set_level(LOG_WARN);

    if (open_session(&s, &e) != OK) {
        close_session(&s);
        return cli_fail("run", &e);
    }
    struct sigaction act = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &act, NULL);
    if (o.prompt)
        status = answer(&s, o.prompt, strlen(o.prompt), &e) ? cli_fail("run", &e)
                 : s.cut                                    ? EXIT_FAILED
                                                            : EXIT_DONE;
    else if (isatty(STDIN_FILENO))
        status = converse(&s);
    else
        status = answer_pipe(&s);
    close_session(&s);
    return status;
}
