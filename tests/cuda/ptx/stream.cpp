/* Streams, events and graphs, the plainest that is right: what is queued has run when the call
 * returns, so an event has happened when it is recorded. While a stream is captured, what is queued
 * there, and on streams that wait for its events, becomes a graph's list. */
#include "runtime.h"

#include <functional>
#include <set>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace
{

typedef std::function<void()> work;

struct capture {
    std::vector<work> nodes;
    std::set<struct CUstream_st *> drawn_in, open; /* streams; those that nobody waited for */
    bool over = false;
};

thread_local int captures; /* begun by this thread */

} // namespace

struct CUstream_st {
    std::shared_ptr<capture> into;
    bool origin = false;
};
struct CUevent_st {
    struct timespec at = {};
    std::shared_ptr<capture> of;
    CUstream_st *stream = nullptr;
};
struct CUgraph_st {
    std::vector<work> nodes;
};
struct CUgraphExec_st {
    std::vector<work> nodes;
};

bool ptx_captures()
{
    return captures > 0;
}

static CUstream_st *stream_of(cudaStream_t s)
{
    static CUstream_st legacy;
    return s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread ? &legacy : s;
}

static cudaError_t queue(cudaStream_t s, work w)
{
    CUstream_st *stream = stream_of(s);
    if (stream->into)
        stream->into->nodes.push_back(std::move(w));
    else
        w();
    return cudaSuccess;
}

/* A pointer of the device's, all bytes of it. */
static void check_range(const void *p, size_t n, const char *what)
{
    device_memory m;
    const uint64_t at = reinterpret_cast<uint64_t>(p);
    if (n && (!device_range(at, &m) || at + n > m.end)) {
        fprintf(stderr, "ptx: %s %zu bytes at %p: not in one allocation\n", what, n, p);
        _exit(97);
    }
}

/* No kernel wrote these bytes last. */
static void copied(const void *to, size_t n)
{
    device_memory m;
    const uint64_t at = reinterpret_cast<uint64_t>(to);
    if (n && device_range(at, &m))
        memset(m.by_kernel + (at - m.begin) / 4, 0, (n + at % 4 + 3) / 4);
}

extern "C" {

/* --- launches --- */

static thread_local struct {
    dim3 grid, size;
    size_t dynamic;
    cudaStream_t stream;
} configured;

unsigned __cudaPushCallConfiguration(dim3 grid,
                                     dim3 size,
                                     size_t dynamic,
                                     struct CUstream_st *stream)
{
    configured = {grid, size, dynamic, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *size, size_t *dynamic, void *stream)
{
    *grid = configured.grid;
    *size = configured.size;
    *dynamic = configured.dynamic;
    memcpy(stream, &configured.stream, sizeof configured.stream);
    return cudaSuccess;
}

static cudaError_t launch_of(
    function *f, dim3 grid, dim3 size, void **args, size_t dynamic, cudaStream_t stream, bool early)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    if (!f)
        return ptx_error(cudaErrorInvalidDeviceFunction);
    if (!f->decoded)
        function_decode(*f);
    launch l = {f,
                {grid.x, grid.y, grid.z},
                {size.x, size.y, size.z},
                static_cast<uint32_t>(dynamic),
                std::vector<uint8_t>(f->param_bytes),
                early};
    for (size_t k = 0; k < f->param_at.size(); k++)
        memcpy(l.params.data() + f->param_at[k], args[k], f->param_size[k]);
    return queue(stream, [l] { launch_run(l); });
}
cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 size, void **args, size_t dynamic, cudaStream_t stream)
{
    return launch_of(
        reinterpret_cast<function *>(kernel), grid, size, args, dynamic, stream, false);
}
cudaError_t cudaLaunchKernel(
    const void *host, dim3 grid, dim3 size, void **args, size_t dynamic, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    return launch_of(kernel_of(host), grid, size, args, dynamic, stream, false);
}

/* It begins when all before it is over, but is held to what one that begins early must not do. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **args)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    bool early = false;
    for (unsigned k = 0; k < config->numAttrs; k++) {
        if (config->attrs[k].id != cudaLaunchAttributeProgrammaticStreamSerialization)
            return ptx_error(cudaErrorNotSupported);
        early |= config->attrs[k].val.programmaticStreamSerializationAllowed != 0;
    }
    return launch_of(kernel_of(host),
                     config->gridDim,
                     config->blockDim,
                     args,
                     config->dynamicSmemBytes,
                     config->stream,
                     early);
}

/* --- copies --- */

cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)
        check_range(to, n, "a copy to");
    if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)
        check_range(from, n, "a copy from");
    return queue(s, [=] {
        memmove(to, from, n);
        copied(to, n);
    });
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    if (ptx_captures())
        return ptx_error(cudaErrorStreamCaptureImplicit);
    return cudaMemcpyAsync(to, from, n, kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void *to,
                              size_t to_pitch,
                              const void *from,
                              size_t from_pitch,
                              size_t width,
                              size_t rows,
                              cudaMemcpyKind kind,
                              cudaStream_t s)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    if (width > to_pitch || width > from_pitch)
        return ptx_error(cudaErrorInvalidPitchValue);
    if (!rows)
        return cudaSuccess;
    if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)
        check_range(to, (rows - 1) * to_pitch + width, "a copy to");
    if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)
        check_range(from, (rows - 1) * from_pitch + width, "a copy from");
    return queue(s, [=] {
        for (size_t r = 0; r < rows; r++) {
            char *const row = static_cast<char *>(to) + r * to_pitch;
            memcpy(row, static_cast<const char *>(from) + r * from_pitch, width);
            copied(row, width);
        }
    });
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    check_range(to, n, "set");
    return queue(s, [=] {
        memset(to, value, n);
        copied(to, n);
    });
}
cudaError_t cudaMemset(void *to, int value, size_t n)
{
    if (ptx_captures())
        return ptx_error(cudaErrorStreamCaptureImplicit);
    return cudaMemsetAsync(to, value, n, nullptr);
}

/* --- streams and events --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new CUstream_st;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock); /* what another thread runs */
    return stream_of(s)->into ? ptx_error(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    return ptx_captures() ? ptx_error(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    CUstream_st *stream = stream_of(s);
    capture *c = e->of.get();
    if (!c || c->over)
        return cudaSuccess;
    c->open.erase(e->stream);
    if (!stream->into) {
        stream->into = e->of;
        c->drawn_in.insert(stream);
        c->open.insert(stream);
    }
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    e->of = stream_of(s)->into;
    e->stream = stream_of(s);
    clock_gettime(CLOCK_MONOTONIC, &e->at);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return e->of ? ptx_error(cudaErrorCapturedEvent) : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    return cudaEventQuery(e);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = static_cast<float>((to->at.tv_sec - from->at.tv_sec) * 1e3 +
                             (to->at.tv_nsec - from->at.tv_nsec) * 1e-6);
    return cudaSuccess;
}

/* --- graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    if (stream_of(s)->into)
        return ptx_error(cudaErrorIllegalState);
    s->into = std::make_shared<capture>();
    s->origin = true;
    captures++;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    *graph = nullptr;
    if (!s->into || !s->origin)
        return ptx_error(cudaErrorIllegalState);
    const std::shared_ptr<capture> c = std::move(s->into);
    s->origin = false;
    captures--;
    c->over = true;
    for (CUstream_st *o : c->drawn_in)
        o->into.reset();
    if (!c->open.empty())
        return ptx_error(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{std::move(c->nodes)};
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *n)
{
    *n = graph->nodes.size();
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    const std::lock_guard<std::recursive_mutex> hold(ptx_lock);
    return queue(s, [nodes = exec->nodes] {
        for (const work &w : nodes)
            w();
    });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

} // extern "C"
