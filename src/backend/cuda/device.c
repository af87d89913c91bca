/* The devices that there are, and whether they can be used. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kernels that may begin early (gpu.h): hardware, and from when on they can be captured. A device
 * may be later than all that there is code for: then its code comes from the PTX of 8.0, without
 * the words. */
enum { FIRST_EARLY_MAJOR = 9, FIRST_EARLY_DRIVER = 12030 };

enum err cuda_failed(cudaError_t rc, const char *what, struct err_info *e)
{
    (void)cudaGetLastError();
    return err_set(e,
                   rc == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_INTERNAL,
                   "CUDA: %s: %s",
                   what,
                   cudaGetErrorString(rc));
}

/* Its name and whether it will do; takes no context on it. */
static void look_at(int index, struct device_info *out)
{
    struct cudaDeviceProp p;
    int mode = cudaComputeModeDefault;
    *out = (struct device_info){0};
    cudaError_t rc = cudaGetDeviceProperties(&p, index);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index);
    if (rc != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(out->why_not, sizeof out->why_not, "%s", cudaGetErrorString(rc));
        return;
    }
    snprintf(out->name, sizeof out->name, "%.63s", p.name);
    out->major = (uint32_t)p.major;
    out->minor = (uint32_t)p.minor;
    out->total_bytes = p.totalGlobalMem;
    if (p.major < CUDA_MIN_MAJOR)
        snprintf(out->why_not,
                 sizeof out->why_not,
                 "compute capability %d.%d; at least %d.0 is needed",
                 p.major,
                 p.minor,
                 CUDA_MIN_MAJOR);
    else if (p.sharedMemPerBlockOptin < CUDA_SHARED_LEAST)
        snprintf(out->why_not,
                 sizeof out->why_not,
                 "compute capability %d.%d: %zu KB of shared memory for a block; %u are needed",
                 p.major,
                 p.minor,
                 p.sharedMemPerBlockOptin >> 10,
                 CUDA_SHARED_LEAST >> 10);
    else if (mode == cudaComputeModeProhibited)
        snprintf(out->why_not, sizeof out->why_not, "its compute mode prohibits any use");
}

/* Before CUDA is first called, as the driver may look but once: kernels come with the context,
 * whatever the environment says (some images of containers set LAZY for all programs). Loaded
 * lazily, each would take memory behind the budget's back, and time, in the step that first needs
 * it; or within a capture. */
static void load_eagerly(void)
{
    const char *given = getenv("CUDA_MODULE_LOADING");
    if (!given || strcmp(given, "EAGER") != 0)
        (void)setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

static enum err count_devices(uint32_t *n, struct err_info *e)
{
    int count = 0, driver = 0;
    load_eagerly();
    const cudaError_t rc = cudaGetDeviceCount(&count);
    *n = 0;
    if (rc != cudaSuccess && cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
        return err_set(e, ERR_NOT_FOUND, "CUDA: the system has no driver for it");
    if (rc != cudaSuccess)
        (void)cudaGetLastError();
    if (rc == cudaErrorInsufficientDriver)
        return err_set(e,
                       ERR_NOT_FOUND,
                       "CUDA: the system's driver is for CUDA %d.%d, the plugin was built with "
                       "%d.%d; a later driver is needed, or a plugin of an older toolkit",
                       driver / 1000,
                       driver % 1000 / 10,
                       CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
    if (rc != cudaSuccess)
        return err_set(e, ERR_NOT_FOUND, "CUDA: %s", cudaGetErrorString(rc));
    *n = (uint32_t)count;
    return OK;
}

/* What is known with a context alone, which becomes current: free memory, and whether kernels were
 * compiled for this device; where they were not a driver says so only when one is launched. */
static void look_inside(int index, struct device_info *out)
{
    size_t free_bytes, total;
    cudaError_t rc = cudaSetDevice(index);
    if (rc == cudaSuccess)
        rc = cudaMemGetInfo(&free_bytes, &total);
    if (rc == cudaSuccess) {
        out->free_bytes = free_bytes;
        out->total_bytes = total;
        const cudaError_t code = limits_code();
        if (code != cudaSuccess)
            snprintf(out->why_not,
                     sizeof out->why_not,
                     "the plugin has no code for compute capability %u.%u: %s",
                     out->major,
                     out->minor,
                     cudaGetErrorString(code));
    } else {
        snprintf(out->why_not, sizeof out->why_not, "%s", cudaGetErrorString(rc));
    }
    if (out->why_not[0])
        (void)cudaGetLastError();
}

static void look(int index, struct device_info *out)
{
    look_at(index, out);
    if (!out->why_not[0])
        look_inside(index, out);
}

enum err cuda_device_list(
    struct device_info *out, uint32_t cap, uint32_t *n, char versions[64], struct err_info *e)
{
    int driver = 0, runtime = 0;
    load_eagerly();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    snprintf(versions,
             64,
             "driver %d.%d, runtime %d.%d",
             driver / 1000,
             driver % 1000 / 10,
             runtime / 1000,
             runtime % 1000 / 10);
    const enum err err = count_devices(n, e);
    for (uint32_t i = 0; !err && i < *n && i < cap; i++)
        look((int)i, &out[i]);
    return err;
}

enum err cuda_device_open(uint32_t index, struct device_info *info, struct err_info *e)
{
    uint32_t n;
    enum err err = count_devices(&n, e);
    if (err)
        return err;
    if (index >= n)
        return err_set(e, ERR_NOT_FOUND, "there is no device cuda:%u; the system has %u", index, n);
    look((int)index, info);
    if (info->why_not[0])
        return err_set(e, ERR_UNSUPPORTED, "cuda:%u (%s): %s", index, info->name, info->why_not);
    return OK;
}

uint32_t cuda_attribute(enum cudaDeviceAttr what, uint32_t index)
{
    int n = 0;
    if (cudaDeviceGetAttribute(&n, what, (int)index) == cudaSuccess)
        return (uint32_t)n;
    (void)cudaGetLastError();
    return 0;
}

void cuda_event_drop(cudaEvent_t event)
{
    if (event)
        (void)cudaEventDestroy(event);
}

void cuda_device_enter(const struct cuda_backend *b)
{
    (void)cudaSetDevice((int)b->cfg.device.index); /* if it fails, so does what follows */
}

int cuda_begins_early(const void *kernel)
{
    static _Thread_local int of_device = -1, yes;
    struct cudaFuncAttributes code = {0};
    int device = -1, major = 0, driver = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device == of_device)
        return yes;
    const char *said = getenv("WEIR_CUDA_PDL");
    yes =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        cudaDriverGetVersion(&driver) == cudaSuccess &&
        cudaFuncGetAttributes(&code, kernel) == cudaSuccess && major >= FIRST_EARLY_MAJOR &&
        code.ptxVersion >= FIRST_EARLY_MAJOR * 10 && driver >= FIRST_EARLY_DRIVER &&
        CUDART_VERSION >= FIRST_EARLY_DRIVER && !(said && strcmp(said, "0") == 0);
    of_device = device;
    return yes;
}
