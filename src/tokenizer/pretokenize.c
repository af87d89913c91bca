#include "tokenizer/pretokenize.h"

#include <string.h>

/* ---- alternatives ---- */

#define NOT(set) (CC_ANY & ~(uint32_t)(set))
#define LN (CC_LETTER | CC_NUMBER)

#define RUN(lead_, body_)                                                                          \
    {                                                                                              \
        .kind = SPLIT_RUN, .lead = (lead_), .body = (body_)                                        \
    }
#define RUN_MAX(body_, max_)                                                                       \
    {                                                                                              \
        .kind = SPLIT_RUN, .body = (body_), .max = (max_)                                          \
    }
#define RUN_TAIL(lead_, body_, tail_, tail_max_)                                                   \
    {                                                                                              \
        .kind = SPLIT_RUN, .lead = (lead_), .body = (body_), .tail = (tail_),                      \
        .tail_max = (tail_max_)                                                                    \
    }
#define CASED(lead_, upper_, lower_, suffix_)                                                      \
    {                                                                                              \
        .kind = SPLIT_CASED, .lead = (lead_), .upper = (upper_), .body = (lower_),                 \
        .contraction = (suffix_)                                                                   \
    }
#define CONTRACTION                                                                                \
    {                                                                                              \
        .kind = SPLIT_CONTRACTION                                                                  \
    }
#define CONTRACTION_ANY                                                                            \
    {                                                                                              \
        .kind = SPLIT_CONTRACTION, .any_case = true                                                \
    }
#define SPACE_NEWLINE                                                                              \
    {                                                                                              \
        .kind = SPLIT_SPACE_NEWLINE                                                                \
    }
#define SPACE_INNER                                                                                \
    {                                                                                              \
        .kind = SPLIT_SPACE_INNER                                                                  \
    }
#define SPACES SPACE_INNER, RUN(0, CC_SPACE)

/* GPT-2 (Radford et al. 2019). */
static const struct split_op gpt2_ops[] = {
    CONTRACTION,
    RUN(CC_BLANK, CC_LETTER),
    RUN(CC_BLANK, CC_NUMBER),
    RUN(CC_BLANK, NOT(CC_SPACE | LN)),
    SPACES,
};

/* tiktoken's cl100k_base and its descendants: a word takes one leading character, line breaks close
 * a word. `digits` is how many make a number at most; 0: any. */
#define CL100K_WORDS(digits)                                                                       \
    RUN(NOT(CC_NEWLINE | LN), CC_LETTER), RUN_MAX(CC_NUMBER, digits),                              \
        RUN_TAIL(CC_BLANK, NOT(CC_SPACE | LN), CC_NEWLINE, 0), SPACE_NEWLINE

static const struct split_op llama3_ops[] = {CONTRACTION_ANY, CL100K_WORDS(3), SPACES};
static const struct split_op qwen2_ops[] = {CONTRACTION_ANY, CL100K_WORDS(1), SPACES};
static const struct split_op minicpm5_ops[] = {CONTRACTION_ANY, CL100K_WORDS(0), SPACES};
static const struct split_op ufakzeka_ops[] = {CL100K_WORDS(1), SPACES};
static const struct split_op jais2_ops[] = {
    CONTRACTION_ANY,
    CL100K_WORDS(3),
    {.kind = SPLIT_SPACE_POWERS},
};

/* Marks belong to words. */
static const struct split_op qwen35_ops[] = {
    CONTRACTION_ANY,
    RUN(NOT(CC_NEWLINE | LN), CC_LETTER | CC_MARK),
    RUN_MAX(CC_NUMBER, 1),
    RUN_TAIL(CC_BLANK, NOT(CC_SPACE | CC_MARK | LN), CC_NEWLINE, 0),
    SPACE_NEWLINE,
    SPACES,
};

static const struct split_op seed_coder_ops[] = {
    CONTRACTION_ANY,
    RUN(NOT(CC_NEWLINE | LN), CC_LETTER),
    RUN_MAX(CC_NUMBER, 1),
    RUN(CC_BLANK, NOT(CC_SPACE | LN)),
    SPACE_NEWLINE,
    SPACES,
};

/* Names are many words: letters go on over single blanks. */
static const struct split_op exaone_moe_ops[] = {
    CONTRACTION_ANY,
    {.kind = SPLIT_LETTERS_BLANK, .lead = NOT(CC_NEWLINE | LN)},
    RUN_MAX(CC_NUMBER, 1),
    RUN_TAIL(CC_BLANK, NOT(CC_SPACE | LN), CC_NEWLINE | CC_SLASH, 1),
    SPACE_NEWLINE,
    SPACES,
};

/* tiktoken's o200k_base and its descendants: a word is upper case, then lower case; letters without
 * case and marks count as both. */
#define NOT_LOWER ((CC_LETTER | CC_MARK) & ~(CC_LOWER | CC_LOWER_REST))
#define NOT_UPPER ((CC_LETTER | CC_MARK) & ~(CC_UPPER | CC_UPPER_REST))
#define O200K(digits, suffix)                                                                      \
    CASED(NOT(CC_NEWLINE | LN), NOT_LOWER, NOT_UPPER, suffix), RUN_MAX(CC_NUMBER, digits),         \
        RUN_TAIL(CC_BLANK, NOT(CC_SPACE | LN), CC_NEWLINE | CC_SLASH, 0), SPACE_NEWLINE, SPACES

static const struct split_op tekken_ops[] = {O200K(1, false)};
static const struct split_op gpt4o_ops[] = {O200K(3, true)};
static const struct split_op youtu_ops[] = {O200K(1, true)};
static const struct split_op kimi_ops[] = {
    RUN(0, CC_HAN),
    CASED(NOT(CC_NEWLINE | LN), NOT_LOWER & ~CC_LETTER_HAN, NOT_UPPER & ~CC_LETTER_HAN, true),
    RUN_MAX(CC_NUMBER, 3),
    RUN_TAIL(CC_BLANK, NOT(CC_SPACE | LN), CC_NEWLINE, 0),
    SPACE_NEWLINE,
    SPACES,
};

/* DeepSeek-V3's main pattern; numbers and Han go before it. */
#define DEEPSEEK_WORDS                                                                             \
    {.kind = SPLIT_LEAD_RUN, .lead = CC_MARKS_ASCII, .body = CC_UPPER | CC_LOWER},                 \
        RUN(NOT(CC_NEWLINE | CC_LETTER | CC_PUNCT | CC_SYMBOL), CC_LETTER | CC_MARK)

static const struct split_op deepseek3_ops[] = {
    DEEPSEEK_WORDS,
    RUN_TAIL(CC_BLANK, CC_PUNCT | CC_SYMBOL, CC_NEWLINE, 0),
    SPACE_NEWLINE,
    SPACES,
};
static const struct split_op spark_ops[] = {
    DEEPSEEK_WORDS,
    RUN(CC_BLANK, CC_PUNCT | CC_SYMBOL),
    RUN_MAX(CC_NEWLINE, 1),
    SPACES,
};

/* Stages of one or two alternatives. */
static const struct split_op newline_ops[] = {RUN_MAX(CC_NEWLINE, 1)};
static const struct split_op lines_ops[] = {RUN(0, NOT(CC_LF)), RUN(0, CC_LF)};
static const struct split_op digit_ops[] = {RUN_MAX(CC_NUMBER, 1)};
static const struct split_op digits3_ops[] = {RUN_MAX(CC_NUMBER, 3)};
static const struct split_op number_ops[] = {RUN(0, CC_NUMBER)};
static const struct split_op ascii3_ops[] = {
    {.kind = SPLIT_RUN, .body = CC_DIGIT, .min = 3, .max = 3},
};
static const struct split_op han_kana_ops[] = {RUN(0, CC_HAN_KANA)};
static const struct split_op deepseek_word_ops[] = {RUN(CC_SPACE, CC_DEEPSEEK_WORD)};
static const struct split_op deepseek_mark_ops[] = {RUN(CC_SPACE, CC_DEEPSEEK_MARK)};
static const struct split_op deepseek_cjk_ops[] = {RUN(0, CC_DEEPSEEK_CJK)};
static const struct split_op coder_letter_ops[] = {RUN(CC_SPACE, CC_LETTER)};
static const struct split_op coder_punct_ops[] = {RUN(CC_SPACE, CC_PUNCT)};
static const struct split_op falcon_punct_ops[] = {RUN(0, CC_PUNCT | CC_MARKS_ASCII)};
static const struct split_op default_punct_ops[] = {RUN(0, CC_PUNCT | CC_SYMBOL_ASCII)};
static const struct split_op poro_ops[] = {RUN(CC_BLANK, CC_PORO_WORD)};
static const struct split_op afmoe_asian_ops[] = {RUN(0, CC_AFMOE_ASIAN)};
static const struct split_op youtu_asian_ops[] = {
    RUN(0, CC_HANGUL),
    RUN(0, CC_YOUTU_MARK),
    RUN(0, CC_BOPOMOFO),
    RUN(0, CC_HAN_KANA),
};
static const struct split_op sentinel_ops[] = {{.kind = SPLIT_SENTINEL}};
static const struct split_op image_ops[] = {{.kind = SPLIT_IMAGE}};
static const struct split_op blanks_ops[] = {{.kind = SPLIT_BLANKS}};
static const struct split_op one_punct_ops[] = {RUN_MAX(CC_PUNCT | CC_MARKS_ASCII, 1)};

/* ---- rules ---- */

#define STAGE(ops_)                                                                                \
    {                                                                                              \
        .ops = (ops_), .n_ops = sizeof(ops_) / sizeof(ops_)[0]                                     \
    }

static const struct pretokenize_rule rules[] = {
    {
        .names = " default ",
        .stages = {STAGE(default_punct_ops), STAGE(gpt2_ops), STAGE(number_ops), STAGE(ascii3_ops)},
    },
    {
        .names = " gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 "
                 "mellum modern-bert jina-es jina-de jina-v2-es jina-v2-de gpt-neox ",
        .stages = {STAGE(gpt2_ops)},
    },
    {
        .names = " jina-v1-en jina-v2-code roberta-bpe ",
        .stages = {STAGE(gpt2_ops)},
        .adds_sep = true,
    },
    {
        .names = " starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
        .stages = {STAGE(digit_ops), STAGE(gpt2_ops)},
    },
    {
        .names = " falcon ",
        .stages = {STAGE(falcon_punct_ops), STAGE(gpt2_ops), STAGE(ascii3_ops)},
    },
    {
        .names = " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
        .stages = {STAGE(llama3_ops)},
        .whole_words = true,
        .adds_bos = true,
    },
    {
        .names = " glm4 glm5 ",
        .stages = {STAGE(llama3_ops)},
        .whole_words = true,
    },
    {
        .names = " dbrx smaug-bpe chatglm-bpe ",
        .stages = {STAGE(llama3_ops)},
    },
    {
        .names = " qwen2 deepseek-r1-qwen stablelm2 hunyuan solar-open megrez grok-2 kormo "
                 "f2llmv2 ",
        .stages = {STAGE(qwen2_ops)},
    },
    {
        .names = " qwen35 ",
        .stages = {STAGE(qwen35_ops)},
    },
    {
        .names = " bailingmoe bailingmoe2 llada-moe ", /* [\r\n] for [\r\n]+ after \s*: the same */
        .stages = {STAGE(qwen2_ops)},
    },
    {
        .names = " laguna ",
        .stages = {STAGE(lines_ops), STAGE(qwen2_ops)},
    },
    {
        .names = " minicpm5 ",
        .stages = {STAGE(digits3_ops), STAGE(minicpm5_ops)},
        .whole_words = true,
    },
    {
        .names = " ufakzeka ",
        .stages = {STAGE(ufakzeka_ops)},
    },
    {
        .names = " jais-2 ",
        .stages = {STAGE(jais2_ops)},
    },
    {
        .names = " seed-coder ",
        .stages = {STAGE(seed_coder_ops)},
    },
    {
        .names = " exaone-moe ",
        .stages = {STAGE(exaone_moe_ops)},
        .spans_words = true,
    },
    {
        .names = " tekken ",
        .stages = {STAGE(tekken_ops)},
        .whole_words = true,
        .adds_bos = true,
    },
    {
        .names = " gpt-4o llama4 kanana2 talkie minimax-m2 ",
        .stages = {STAGE(gpt4o_ops)},
    },
    {
        .names = " granite-embed-multi-97m ",
        .stages = {STAGE(gpt4o_ops)},
        .whole_words = true,
    },
    {
        .names = " tiny_aya cohere2moe ",
        .stages = {{.cut = split_cut_groups}, STAGE(gpt4o_ops)},
    },
    {
        .names = " youtu ",
        .stages = {STAGE(youtu_asian_ops), STAGE(youtu_ops)},
        .whole_words = true,
    },
    {
        .names = " kimi-k2 ",
        .stages = {STAGE(kimi_ops)},
    },
    {
        .names = " deepseek-llm ",
        .stages = {STAGE(newline_ops),
                   STAGE(deepseek_word_ops),
                   STAGE(deepseek_mark_ops),
                   {.cut = split_cut_end_space},
                   STAGE(deepseek_cjk_ops),
                   STAGE(number_ops)},
    },
    {
        .names = " deepseek-coder ",
        .stages = {STAGE(newline_ops),
                   STAGE(coder_letter_ops),
                   STAGE(coder_punct_ops),
                   STAGE(deepseek_cjk_ops),
                   STAGE(digit_ops)},
    },
    {
        .names = " deepseek-v3 hunyuan-dense joyai-llm hy_v4 ",
        .stages = {STAGE(digits3_ops), STAGE(han_kana_ops), STAGE(deepseek3_ops)},
    },
    {
        .names = " spark2_5 ",
        .stages = {STAGE(digits3_ops), STAGE(han_kana_ops), STAGE(spark_ops), STAGE(digit_ops)},
    },
    {
        .names = " afmoe ",
        .stages = {{.cut = split_cut_groups}, STAGE(afmoe_asian_ops), STAGE(deepseek3_ops)},
    },
    {
        .names = " poro-chat bloom gpt3-finnish ",
        .stages = {STAGE(poro_ops)},
    },
    {
        .names = " viking ",
        .stages = {STAGE(poro_ops), STAGE(digit_ops)},
    },
    {
        .names = " superbpe ",
        .stages = {STAGE(number_ops), {.cut = split_cut_thousands}},
        .spans_words = true,
    },
    {
        .names = " chameleon ",
        .stages = {STAGE(sentinel_ops),
                   STAGE(image_ops),
                   STAGE(blanks_ops),
                   STAGE(digit_ops),
                   STAGE(one_punct_ops),
                   STAGE(gpt2_ops)},
        .adds_bos = true,
    },
    {
        .names = " gemma4 granite-embed-multi-311m ",
        .stages = {STAGE(lines_ops)},
        .adds_bos = true,
        .spans_words = true,
        .whole_lines = true,
        .raw_text = true,
    },
    {
        .names = " sarvam-moe ",
        .stages = {STAGE(lines_ops)},
        .spans_words = true,
        .raw_text = true,
    },
};

#define N_RULES (sizeof rules / sizeof rules[0])

static bool holds(const char *names, const char *name, size_t n)
{
    for (const char *at = names + 1; *at; at = strchr(at, ' ') + 1)
        if (strncmp(at, name, n) == 0 && at[n] == ' ')
            return true;
    return false;
}

const struct pretokenize_rule *pretokenize_find(const char *name, size_t n)
{
    if (n == 0 || memchr(name, ' ', n) || memchr(name, '\0', n))
        return NULL;
    for (size_t i = 0; i < N_RULES; i++)
        if (holds(rules[i].names, name, n))
            return &rules[i];
    return NULL;
}

const struct pretokenize_rule *pretokenize_default(void)
{
    return &rules[0];
}

const struct pretokenize_rule *pretokenize_rule_at(size_t i)
{
    return i < N_RULES ? &rules[i] : NULL;
}

size_t pretokenize_next(const struct pretokenize_rule *rule,
                        struct pretokenize_scratch *s,
                        const char *text,
                        size_t n,
                        size_t at)
{
    const struct charclass_table *t = charclass_table();
    size_t end = n;
    if (at == 0)
        memset(s, 0, sizeof *s);
    for (size_t i = 0; i < PRETOKENIZE_MAX_STAGES; i++) {
        const struct split_stage *stage = &rule->stages[i];
        struct split_level *l = &s->levels[i];
        if (!stage->ops && !stage->cut)
            break;
        if (l->piece_end <= at)
            l->piece_end = split_next(t, stage, l, text, at, end);
        end = l->piece_end;
    }
    return end;
}
