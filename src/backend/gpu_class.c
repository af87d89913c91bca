#include "backend/backend.h"

const char *gpu_class_name(enum gpu_class c)
{
    static const char *const names[N_GPU_CLASSES] = {
        "hidden", "intermediate", "attention", "staging"};
    return names[c];
}
