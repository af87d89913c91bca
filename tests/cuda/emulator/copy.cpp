/* Copies and memsets. */
#include "emu_queue.h"

#include <string.h>

using namespace emu;

namespace
{

struct copy_shape {
    char *to;
    size_t to_pitch;
    const char *from;
    size_t from_pitch, width, height;
};

size_t span(size_t pitch, size_t width, size_t height)
{
    return width && height ? pitch * (height - 1) + width : 0;
}

void copy_now(const copy_shape &c)
{
    emu_counted.copies++;
    for (size_t i = 0; i < c.height; i++) {
        const char *from = c.from + i * c.from_pitch;
        char *to = c.to + i * c.to_pitch;
        if (emu_on_range && running()) {
            emu_on_range(from, c.width, false);
            emu_on_range(to, c.width, true);
        }
        memcpy(to, from, c.width);
    }
}

cudaError_t copy(copy_shape c, cudaMemcpyKind kind, cudaStream_t stream, bool synchronous)
{
    if (!c.width || !c.height) {
        return cudaSuccess;
    }
    if (!emu_check("copy to", c.to, span(c.to_pitch, c.width, c.height)) ||
        !emu_check("copy from", c.from, span(c.from_pitch, c.width, c.height))) {
        return cudaErrorInvalidValue;
    }
    emu_place to = emu_find(c.to).place, from = emu_find(c.from).place;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault &&
        (to_device != (to == EMU_DEVICE) || from_device != (from == EMU_DEVICE))) {
        emu_report("copy: the direction is not that of the pointers");
        return cudaErrorInvalidMemcpyDirection;
    }
    emu_stream *s = stream_of(stream);
    if (from == EMU_PAGEABLE && !s->capturing) {
        /* staged by the call, as the driver does */
        auto staged = std::make_shared<std::vector<char>>(c.width * c.height);
        copy_now({staged->data(), c.width, c.from, c.from_pitch, c.width, c.height});
        emu_counted.copies--;
        c.from_pitch = c.width;
        cudaError_t e = add(stream, "a copy", [c, staged] {
            copy_shape k = c;
            k.from = staged->data();
            copy_now(k);
        });
        if (e != cudaSuccess) {
            return e;
        }
    } else {
        cudaError_t e = add(stream, "a copy", [c] { copy_now(c); });
        if (e != cudaSuccess) {
            return e;
        }
        if (!s->capturing && !s->queue.empty()) {
            s->queue.back().touches = {{c.to, span(c.to_pitch, c.width, c.height)},
                                       {c.from, span(c.from_pitch, c.width, c.height)}};
        }
    }
    if ((synchronous || to == EMU_PAGEABLE) && !s->capturing) {
        run_until([s] { return s->queue.empty(); });
        learn(&host_known, s->known);
    }
    return cudaSuccess;
}

} // namespace

cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    EMU_LOCK();
    return emu_result(
        copy({static_cast<char *>(dst), size, static_cast<const char *>(src), size, size, 1},
             kind,
             stream,
             false));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind)
{
    EMU_LOCK();
    if (emu_capture_forbids()) {
        return emu_result(cudaErrorStreamCaptureImplicit);
    }
    return emu_result(
        copy({static_cast<char *>(dst), size, static_cast<const char *>(src), size, size, 1},
             kind,
             nullptr,
             true));
}

cudaError_t cudaMemcpy2DAsync(void *dst,
                              size_t dst_pitch,
                              const void *src,
                              size_t src_pitch,
                              size_t width,
                              size_t height,
                              enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    EMU_LOCK();
    if (width > dst_pitch || width > src_pitch) {
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(copy({static_cast<char *>(dst),
                            dst_pitch,
                            static_cast<const char *>(src),
                            src_pitch,
                            width,
                            height},
                           kind,
                           stream,
                           false));
}

cudaError_t cudaMemcpy2D(void *dst,
                         size_t dst_pitch,
                         const void *src,
                         size_t src_pitch,
                         size_t width,
                         size_t height,
                         enum cudaMemcpyKind kind)
{
    EMU_LOCK();
    if (emu_capture_forbids()) {
        return emu_result(cudaErrorStreamCaptureImplicit);
    }
    if (width > dst_pitch || width > src_pitch) {
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(copy({static_cast<char *>(dst),
                            dst_pitch,
                            static_cast<const char *>(src),
                            src_pitch,
                            width,
                            height},
                           kind,
                           nullptr,
                           true));
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t stream)
{
    EMU_LOCK();
    if (!size) {
        return emu_result(cudaSuccess);
    }
    if (!emu_check("memset", p, size)) {
        return emu_result(cudaErrorInvalidValue);
    }
    if (emu_find(p).place == EMU_PAGEABLE) {
        emu_report("memset: not memory of the device");
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(add(stream, "a memset", [p, value, size] {
        if (emu_on_range) {
            emu_on_range(p, size, true);
        }
        memset(p, value, size);
    }));
}

cudaError_t cudaMemset(void *p, int value, size_t size)
{
    return cudaMemsetAsync(p, value, size, nullptr);
}
