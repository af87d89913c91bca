/* weir render: a chat template with its variables, as text. */
#include "chat/render.h"
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char doc[] =
    "Render a chat template with the variables of a JSON object and print the text exactly, with "
    "no newline added."
    "\v"
    "The template is that of a model, or a file. The object holds `messages` and whatever else the "
    "template reads; with a model, bos_token and eos_token are its own unless the object has "
    "them.\n\n"
    "Examples:\n"
    "  weir render -m model.gguf --context chat.json\n"
    "  weir render --template chat.jinja --context - --now 2026-01-31T12:00:00 \\\n"
    "    < chat.json\n";

enum { KEY_TEMPLATE = 256, KEY_CONTEXT, KEY_NOW };

static const struct argp_option options[] = {
    {"model", 'm', "FILE", 0, "GGUF file whose template to use; default: the built-in model", 0},
    {"template", KEY_TEMPLATE, "FILE", 0, "Use the template in FILE", 0},
    {"context", KEY_CONTEXT, "FILE", 0, "The variables, a JSON object; - is stdin", 0},
    {"now", KEY_NOW, "TIME", 0, "What strftime_now tells, as 2026-01-31T12:00:00", 0},
    {0},
};

struct settings {
    const char *model, *template, *context;
    struct tm now;
    bool has_now;
};

/* strptime takes the 31st of any month. */
static bool is_time(const struct tm *t)
{
    struct tm same = *t;
    (void)timegm(&same);
    return same.tm_mday == t->tm_mday && same.tm_sec == t->tm_sec;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;
    const char *end;
    switch (key) {
    case 'm':
        s->model = arg;
        return 0;
    case KEY_TEMPLATE:
        s->template = arg;
        return 0;
    case KEY_CONTEXT:
        s->context = arg;
        return 0;
    case KEY_NOW:
        end = strptime(arg, "%Y-%m-%dT%H:%M:%S", &s->now);
        if (!end || *end || !is_time(&s->now))
            argp_error(state, "--now: '%s' is not a time such as 2026-01-31T12:00:00", arg);
        s->has_now = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    case ARGP_KEY_END:
        if (!s->context)
            argp_error(state, "--context is needed");
        if (s->model && s->template)
            argp_error(state, "--model and --template exclude each other");
        if (s->context && s->template && strcmp(s->context, "-") == 0 &&
            strcmp(s->template, "-") == 0)
            argp_error(state, "--context and --template: only one can be standard input");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The template, and the model's special tokens where it is a model's. */
struct source {
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    char *file;
    const char *text;
    size_t n;
};

static enum err open_source(const struct settings *s, struct source *out, struct err_info *e)
{
    struct gguf_str text = {NULL, 0};
    enum err err;
    if (s->template) {
        err = cli_read_file(s->template, SIZE_MAX, &out->file, &out->n, e);
        out->text = out->file;
        return err;
    }
    const char *path = cli_model_path(s->model, e);
    if (!path)
        return e->code;
    if ((err = gguf_open(path, &out->gguf, e)) ||
        (err = tokenizer_create(out->gguf, &out->tokenizer, e)) ||
        (err = gguf_get_str(out->gguf, "tokenizer.chat_template", &text, e)))
        return err;
    if (text.len == 0)
        return err_set(e, ERR_NOT_FOUND, "%s has no chat template", path);
    out->text = text.data;
    out->n = text.len;
    return OK;
}

static void close_source(struct source *s)
{
    tokenizer_destroy(s->tokenizer);
    gguf_close(s->gguf);
    free(s->file);
}

static enum err render(const struct settings *s, struct err_info *e)
{
    struct source source = {0};
    struct jinja_text text = {0};
    char *context = NULL;
    size_t n = 0;
    enum err err;
    if (!(err = open_source(s, &source, e)) &&
        !(err = cli_read_file(s->context, SIZE_MAX, &context, &n, e)))
        err = chat_render_file(source.text,
                               source.n,
                               source.tokenizer,
                               context,
                               n,
                               s->has_now ? &s->now : NULL,
                               &text,
                               e);
    if (!err && text.text.len > 0) /* main.c tells where that fails */
        (void)!fwrite(text.text.data, 1, text.text.len, stdout);
    jinja_text_deinit(&text);
    free(context);
    close_source(&source);
    return err;
}

int cmd_render(int argc, char **argv)
{
    static const struct argp argp = {options, parse_option, NULL, doc, NULL, NULL, NULL};
    struct settings s = {0};
    struct err_info e = {0};
    s.now.tm_isdst = -1;
    cli_parse(&argp, argc, argv, &s);
    if (s.has_now)
        (void)mktime(&s.now); /* the day of the week and of the year */
    return render(&s, &e) ? cli_fail("render", &e) : EXIT_DONE;
}
