/* CUDA's library as far as the plugin and its tests call it: memory, the device, and the kernels
 * that a program brings. Work runs where it is queued, before the call returns (stream.cpp). */
#include "runtime.h"

#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

std::recursive_mutex ptx_lock;
thread_local cudaError_t ptx_last_error = cudaSuccess;

namespace
{

enum { ALIGNMENT = 256, GUARD = 4096 };

struct allocation {
    size_t size, map_bytes;
    void *map;
    bool of_host;
    uint8_t *by_kernel; /* of each word whether a kernel wrote it last */
};
std::map<uint64_t, allocation> allocations;
size_t used;
int capability; /* of the code that the program brings; no initializer sets it later */

size_t total_bytes()
{
    const char *mib = getenv("WEIR_PTX_MEMORY_MIB");
    return (mib ? strtoull(mib, nullptr, 10) : 512) << 20;
}

void *allocate(size_t n, bool of_host)
{
    const size_t bytes = (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!of_host && used + bytes > total_bytes())
        return nullptr;
    const size_t map_bytes = (bytes + GUARD - 1) / GUARD * GUARD;
    void *map =
        mmap(nullptr, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return nullptr;
    memset(map, 0xff, bytes);
    uint8_t *const by_kernel = static_cast<uint8_t *>(calloc(bytes / 4 + 1, 1));
    allocations[reinterpret_cast<uint64_t>(map)] = {n, map_bytes, map, of_host, by_kernel};
    used += of_host ? 0 : bytes;
    return map;
}

cudaError_t release(void *p, bool of_host)
{
    const auto it = allocations.find(reinterpret_cast<uint64_t>(p));
    if (!p)
        return cudaSuccess;
    if (it == allocations.end() || it->second.of_host != of_host)
        return ptx_error(cudaErrorInvalidValue);
    used -= of_host ? 0 : (it->second.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    munmap(it->second.map, it->second.map_bytes);
    free(it->second.by_kernel);
    allocations.erase(it);
    return cudaSuccess;
}

/* --- code --- */

struct binary {
    std::string_view text;
    std::unique_ptr<module> read; /* when a kernel of it is first asked for */
};
struct kernel_name {
    binary *of;
    std::string name;
};
/* By the host's stub; there when objects that come before this one in the program bring theirs. */
std::map<const void *, kernel_name> &kernels()
{
    static std::map<const void *, kernel_name> all;
    return all;
}

/* A container of code for several architectures: of the kinds that there are, 1 is PTX. */
struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};
struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
};
struct fat_wrapper {
    uint32_t magic, version;
    const uint8_t *data;
};

} // namespace

bool device_range(uint64_t address, device_memory *m)
{
    auto it = allocations.upper_bound(address);
    if (it == allocations.begin())
        return false;
    --it;
    *m = {it->first, it->first + it->second.size, it->second.by_kernel};
    return address < m->end;
}

void *device_constant(const void *bytes, size_t n)
{
    void *p = allocate(n, true);
    memcpy(p, bytes, n);
    return p;
}

int device_capability()
{
    return capability;
}

function *kernel_of(const void *host)
{
    const auto it = kernels().find(host);
    if (it == kernels().end())
        return nullptr;
    binary &b = *it->second.of;
    if (!b.read)
        b.read.reset(module_read(b.text));
    const auto f = b.read->functions.find(it->second.name);
    return f == b.read->functions.end() ? nullptr : f->second.get();
}

extern "C" {

/* --- what nvcc's objects call before main --- */

void **__cudaRegisterFatBinary(void *fat)
{
    const fat_wrapper *w = static_cast<const fat_wrapper *>(fat);
    fat_header h;
    memcpy(&h, w->data, sizeof h);
    const uint8_t *at = w->data + h.header_bytes, *end = at + h.bytes;
    fat_entry e;
    for (; at < end; at += e.header_bytes + e.bytes) {
        memcpy(&e, at, sizeof e);
        if (e.kind != 1)
            continue;
        const char *text = reinterpret_cast<const char *>(at + e.header_bytes);
        const std::string_view s(text, strnlen(text, e.bytes));
        const size_t target = s.find(".target sm_");
        if (target == s.npos)
            break;
        capability = atoi(text + target + 11);
        return reinterpret_cast<void **>(new binary{s, nullptr});
    }
    fprintf(stderr, "ptx: code without PTX as plain text (--compress-mode=none)\n");
    _exit(97);
}
void __cudaRegisterFatBinaryEnd(void **)
{
}
void __cudaUnregisterFatBinary(void **)
{
}
void __cudaRegisterFunction(void **of,
                            const char *host,
                            char *,
                            const char *name,
                            int,
                            uint3 *,
                            uint3 *,
                            dim3 *,
                            dim3 *,
                            int *)
{
    kernels()[host] = {reinterpret_cast<binary *>(of), name};
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    *kernel = reinterpret_cast<cudaKernel_t>(kernel_of(host));
    return *kernel ? cudaSuccess : ptx_error(cudaErrorInvalidDeviceFunction);
}

/* --- errors --- */

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = ptx_last_error;
    ptx_last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void)
{
    return ptx_last_error;
}
const char *cudaGetErrorName(cudaError_t e)
{
    static thread_local char name[32];
    snprintf(name, sizeof name, "cudaError %d", e);
    return name;
}
const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess ? "no error" : cudaGetErrorName(e);
}

/* --- the device --- */

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *index)
{
    *index = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int index)
{
    return index == 0 ? cudaSuccess : ptx_error(cudaErrorInvalidDevice);
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *)
{
    memset(a, 0, sizeof *a);
    a->ptxVersion = a->binaryVersion = capability;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = capability / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = capability % 10;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = capability == 80 ? 163 << 10 : 227 << 10;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        break;
    case cudaDevAttrComputeMode:
        *value = cudaComputeModeDefault;
        break;
    default:
        return ptx_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "PTX %d.%d", capability / 10, capability % 10);
    p->major = capability / 10;
    p->minor = capability % 10;
    p->totalGlobalMem = total_bytes();
    p->multiProcessorCount = 4;
    p->sharedMemPerBlockOptin = capability == 80 ? 163 << 10 : 227 << 10;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *host, cudaFuncAttribute attribute, int value)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    function *f = kernel_of(host);
    const int most = capability == 80 ? 163 << 10 : 227 << 10;
    if (!f)
        return ptx_error(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > most)
            return ptx_error(cudaErrorInvalidValue);
        f->dynamic_most = static_cast<uint32_t>(value);
    }
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t)
{
    *n = 1;
    return cudaSuccess;
}

/* --- memory --- */

cudaError_t cudaMalloc(void **p, size_t n)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    if (ptx_captures())
        return ptx_error(cudaErrorStreamCaptureUnsupported);
    *p = n ? allocate(n, false) : nullptr;
    return *p || !n ? cudaSuccess : ptx_error(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void *p)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    if (p && ptx_captures())
        return ptx_error(cudaErrorStreamCaptureUnsupported);
    return release(p, false);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    *p = n ? allocate(n, true) : nullptr;
    return *p || !n ? cudaSuccess : ptx_error(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
    return cudaHostAlloc(p, n, 0);
}
cudaError_t cudaFreeHost(void *p)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    return release(p, true);
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    *total = total_bytes();
    *left = *total - used;
    return cudaSuccess;
}

} // extern "C"
