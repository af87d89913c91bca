/* Each source writes what the model's makers say a conversation looks like. The beginning-of-text
 * token is not among it: the tokenizer puts it where the model wants one. */
#include "chat/builtin.h"

#include <string.h>

/* The system's text goes before the next thing the user says: `ns.system` is it until then, and
 * what is left of it at the end. */
#define SYSTEM_WAITS                                                                               \
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"        \
    "{% set ns.system = ns.system + (m.content or '') %}"

/* BEFORE role BETWEEN content AFTER, and the same up to the content for the answer. */
#define TURNS(before, between, content, after)                                                     \
    "{% for m in messages %}{{ '" before "' + m.role + '" between "' + " content " + '" after      \
    "' }}{% endfor %}"                                                                             \
    "{% if add_generation_prompt %}{{ '" before "assistant" between "' }}{% endif %}"

/* [INST] ... [/INST] around what is not the assistant's; `first` opens such a turn. */
#define INST(first, system_open, system_close, close, answer, end)                                 \
    SYSTEM_WAITS                                                                                   \
    "{% elif m.role == 'assistant' %}{{ '" answer "' + (m.content or '') + '" end "' }}"           \
    "{% else %}{{ '" first "' }}{% if ns.system %}{{ '" system_open                                \
    "' + ns.system + '" system_close                                                               \
    "' }}{% set ns.system = '' %}{% endif %}{{ (m.content or '') + '" close "' }}"                 \
    "{% endif %}{% endfor %}"                                                                      \
    "{% if ns.system %}{{ '" first system_open "' + ns.system + '" system_close "' }}{% endif %}"

#define COHERE_TURN "<|START_OF_TURN_TOKEN|><|"

static const struct {
    const char *name, *source;
} builtin[] = {
    {"chatml", TURNS("<|im_start|>", "\\n", "(m.content or '')", "<|im_end|>\\n")},
    {"llama2", INST("[INST] ", "", "\\n", " [/INST]", "", "</s>")},
    {"llama2-sys", INST("[INST] ", "<<SYS>>\\n", "\\n<</SYS>>\\n\\n", " [/INST]", "", "</s>")},
    {"llama3",
     TURNS("<|start_header_id|>",
           "<|end_header_id|>\\n\\n",
           "(m.content or '') | trim",
           "<|eot_id|>")},
    {"llama4",
     TURNS("<|header_start|>", "<|header_end|>\\n\\n", "(m.content or '') | trim", "<|eot|>")},
    {"mistral-v1", INST(" [INST] ", "", "\\n\\n", " [/INST]", " ", "</s>")},
    {"mistral-v3", INST("[INST] ", "", "\\n\\n", "[/INST]", " ", "</s>")},
    {"mistral-v3-tekken", INST("[INST]", "", "\\n\\n", "[/INST]", "", "</s>")},
    {"mistral-v7",
     "{% for m in messages %}"
     "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + (m.content or '') + '[/SYSTEM_PROMPT]' }}"
     "{% elif m.role != 'assistant' %}{{ '[INST] ' + (m.content or '') + '[/INST]' }}"
     "{% else %}{{ ' ' + (m.content or '') + '</s>' }}{% endif %}{% endfor %}"},
    {"mistral-v7-tekken",
     "{% for m in messages %}"
     "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + (m.content or '') + '[/SYSTEM_PROMPT]' }}"
     "{% elif m.role != 'assistant' %}{{ '[INST]' + (m.content or '') + '[/INST]' }}"
     "{% else %}{{ (m.content or '') + '</s>' }}{% endif %}{% endfor %}"},
    {"phi3", TURNS("<|", "|>\\n", "(m.content or '')", "<|end|>\\n")},
    {"phi4", TURNS("<|im_start|>", "<|im_sep|>", "(m.content or '')", "<|im_end|>")},
    {"falcon3", TURNS("<|", "|>\\n", "(m.content or '')", "\\n")},
    {"zephyr", TURNS("<|", "|>\\n", "(m.content or '')", "<|endoftext|>\\n")},
    {"gemma",
     SYSTEM_WAITS
     "{% else %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
     "{% if ns.system and m.role != 'assistant' %}{{ (ns.system | trim) + '\\n\\n' }}"
     "{% set ns.system = '' %}{% endif %}"
     "{{ ((m.content or '') | trim) + '<end_of_turn>\\n' }}{% endif %}{% endfor %}"
     "{% if ns.system %}{{ '<start_of_turn>user\\n' + (ns.system | trim) + '<end_of_turn>\\n' }}"
     "{% endif %}"
     "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"openchat",
     "{% for m in messages %}"
     "{% if m.role != 'system' %}{{ 'GPT4 Correct ' + (m.role | title) + ': ' }}{% endif %}"
     "{{ (m.content or '') + '<|end_of_turn|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}"},
    {"vicuna",
     "{% for m in messages %}"
     "{% if m.role == 'system' %}{{ (m.content or '') + '\\n\\n' }}"
     "{% elif m.role != 'assistant' %}{{ 'USER: ' + (m.content or '') + '\\n' }}"
     "{% else %}{{ 'ASSISTANT: ' + (m.content or '') + '</s>\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"},
    {"deepseek",
     "{% for m in messages %}"
     "{% if m.role == 'system' %}{{ (m.content or '') }}"
     "{% elif m.role != 'assistant' %}{{ '### Instruction:\\n' + (m.content or '') + '\\n' }}"
     "{% else %}{{ '### Response:\\n' + (m.content or '') + '\\n<|EOT|>\\n' }}{% endif %}{% endfor "
     "%}"
     "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}"},
    {"command-r",
     "{% for m in messages %}"
     "{{ '" COHERE_TURN "' + ('SYSTEM' if m.role == 'system' else 'CHATBOT' if m.role == "
     "'assistant' else 'USER') + '_TOKEN|>' + "
     "((m.content or '') | trim) + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '" COHERE_TURN "CHATBOT_TOKEN|>' }}{% endif %}"},
    {"granite",
     TURNS("<|start_of_role|>", "<|end_of_role|>", "(m.content or '')", "<|end_of_text|>\\n")},
};
#define N_BUILTIN (sizeof builtin / sizeof builtin[0])

const char *chat_builtin_source(const char *name)
{
    for (size_t i = 0; i < N_BUILTIN; i++)
        if (strcmp(builtin[i].name, name) == 0)
            return builtin[i].source;
    return NULL;
}

const char *chat_builtin_name(size_t i)
{
    return i < N_BUILTIN ? builtin[i].name : NULL;
}
