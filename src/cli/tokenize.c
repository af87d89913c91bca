/* weir tokenize: text to token ids, and back. */
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char doc[] =
    "Turn text into the model's token ids, one line of ids a text."
    "\v"
    "The whole input is one text; with --null, texts are separated by NUL bytes. No BOS is put in "
    "front and special tokens are read as ordinary text, unless --bos or --special is given.\n\n"
    "With --decode each line of ids, separated by blanks or commas, becomes its exact bytes; the "
    "bytes of one line are followed by a NUL with --null, and by nothing without.\n\n"
    "Examples:\n"
    "  printf 'Hello world' | weir tokenize -m model.gguf\n"
    "  weir tokenize -m model.gguf --special --file prompt.txt\n"
    "  echo 1 22 333 | weir tokenize -m model.gguf --decode\n";

enum { KEY_FILE = 256, KEY_NULL, KEY_BOS, KEY_SPECIAL, KEY_DECODE };

static const struct argp_option options[] = {
    {"model", 'm', "FILE", 0, "GGUF file whose vocabulary to use; default: the built-in model", 0},
    {"file", KEY_FILE, "FILE", 0, "Read FILE instead of stdin", 0},
    {"null", KEY_NULL, NULL, 0, "Texts are separated by NUL bytes", 0},
    {"bos", KEY_BOS, NULL, 0, "Put the model's BOS token in front of each text", 0},
    {"special",
     KEY_SPECIAL,
     NULL,
     0,
     "Read special tokens in the text as such; with --decode, write their text",
     0},
    {"decode", KEY_DECODE, NULL, 0, "Turn ids into text", 0},
    {0},
};

struct settings {
    const char *model;
    const char *file;
    bool null, bos, special, decode;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;
    switch (key) {
    case 'm':
        s->model = arg;
        return 0;
    case KEY_FILE:
        s->file = arg;
        return 0;
    case KEY_NULL:
        s->null = true;
        return 0;
    case KEY_BOS:
        s->bos = true;
        return 0;
    case KEY_SPECIAL:
        s->special = true;
        return 0;
    case KEY_DECODE:
        s->decode = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s': texts come from stdin or --file", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum err print_ids(const struct tokenizer *t,
                          const struct settings *s,
                          const char *text,
                          size_t n,
                          struct err_info *e)
{
    struct token_list ids = {0};
    if (s->bos && tokenizer_bos(t) != TOKEN_NONE)
        token_list_add(&ids, tokenizer_bos(t));
    struct text_piece piece = {.text = text, .n_bytes = n, .parse_special = s->special};
    enum err err = tokenizer_encode(t, &piece, 1, &ids, e);
    if (!err) {
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%d", i ? " " : "", ids.ids[i]);
        putchar('\n');
    }
    token_list_deinit(&ids);
    return err;
}

static enum err encode_all(const struct tokenizer *t,
                           const struct settings *s,
                           const char *in,
                           size_t n,
                           struct err_info *e)
{
    if (!s->null)
        return print_ids(t, s, in, n, e);
    const char *end = in + n;
    for (;;) {
        const char *nul = memchr(in, '\0', (size_t)(end - in));
        enum err err = print_ids(t, s, in, (size_t)((nul ? nul : end) - in), e);
        if (err || !nul)
            return err;
        in = nul + 1;
    }
}

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

/* Bytes of the word at s, as many as an error text shows. */
static int word_len(const char *s)
{
    size_t n = strcspn(s, " ,\t\r\n");
    return n < 20 ? (int)n : 20;
}

/* The id at *at, which is moved behind it; the input ends with a NUL. */
static enum err read_id(const struct tokenizer *t,
                        const char **at,
                        token_id *id,
                        struct err_info *e)
{
    char *behind;
    errno = 0;
    unsigned long value = strtoul(*at, &behind, 10);
    if (!isdigit((unsigned char)**at))
        return err_set(e, ERR_INVALID, "'%.*s' is not a token id", word_len(*at), *at);
    if (errno || value >= tokenizer_n_vocab(t))
        return err_set(e,
                       ERR_INVALID,
                       "%.*s: the vocabulary has %u tokens",
                       (int)(behind - *at < 20 ? behind - *at : 20),
                       *at,
                       tokenizer_n_vocab(t));
    *id = (token_id)value;
    *at = behind;
    return OK;
}

static enum err decode_all(const struct tokenizer *t,
                           const struct settings *s,
                           const char *in,
                           size_t n,
                           struct err_info *e)
{
    struct token_list ids = {0};
    struct buf out = {0};
    enum err err = OK;
    for (const char *end = in + n; in < end && !err;) {
        ids.n = 0;
        for (; in < end && *in != '\n' && !err;) {
            token_id id = TOKEN_NONE;
            if (is_separator(*in)) {
                in++;
                continue;
            }
            err = read_id(t, &in, &id, e);
            if (!err)
                token_list_add(&ids, id);
        }
        if (err)
            break;
        in += in < end; /* the newline */
        tokenizer_decode(t, ids.ids, ids.n, s->special, &out);
        if (s->null)
            buf_char(&out, '\0');
        fwrite(out.data, 1, out.len, stdout);
        buf_clear(&out);
    }
    buf_deinit(&out);
    token_list_deinit(&ids);
    return err;
}

static enum err run(const struct settings *s, struct err_info *e)
{
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    char *in = NULL;
    size_t n = 0;
    enum err err = OK;
    const char *path = cli_model_path(s->model, e);
    if (!path)
        return e->code;
    err = gguf_open(path, &g, e);
    if (!err)
        err = tokenizer_create(g, &t, e);
    if (!err)
        err = cli_read_file(s->file, SIZE_MAX, &in, &n, e);
    if (!err && s->decode)
        err = decode_all(t, s, in, n, e);
    else if (!err)
        err = encode_all(t, s, in, n, e);
    free(in);
    tokenizer_destroy(t);
    gguf_close(g);
    return err;
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct argp argp = {.options = options, .parser = parse_option, .doc = doc};
    struct settings s = {.file = "-"};
    struct err_info e = {0};
    cli_parse(&argp, argc, argv, &s);
    return run(&s, &e) ? cli_fail("tokenize", &e) : EXIT_DONE;
}
