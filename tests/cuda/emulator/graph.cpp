/* Captures and graphs. A capture makes nodes instead of work, each with the nodes that it comes
 * after; a launch of the graph is one piece of work that runs the nodes in an order that these
 * allow. */
#include "emu_queue.h"

#include <stdlib.h>

using namespace emu;

struct emu_graph {
    std::vector<emu::node> nodes;
};

struct emu_graph_exec {
    std::shared_ptr<std::vector<emu::node>> nodes;
    size_t device_bytes;
};

static unsigned graphs_alive, n_captures;

static size_t number_of(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    if (is_legacy(s)) {
        return emu_result(cudaErrorStreamCaptureUnsupported);
    }
    if (s->capturing) {
        return emu_result(cudaErrorInvalidValue);
    }
    auto c = std::make_shared<capture>();
    c->origin = s;
    c->mode = mode;
    c->thread = std::this_thread::get_id();
    /* WEIR_EMU_CAPTURES: so many more succeed */
    c->invalid = ++n_captures > number_of("WEIR_EMU_CAPTURES", UINT32_MAX);
    s->capturing = c;
    s->tail.clear();
    captures.push_back(c.get());
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    *graph = nullptr;
    std::shared_ptr<capture> c = s->capturing;
    if (!c || c->origin != s) {
        return emu_result(cudaErrorInvalidValue);
    }
    /* every node must be one that the origin's next work would come after */
    std::vector<bool> joined(c->nodes.size());
    std::vector<size_t> open = s->tail;
    while (!open.empty()) {
        size_t i = open.back();
        open.pop_back();
        if (!joined[i]) {
            joined[i] = true;
            open.insert(open.end(), c->nodes[i].after.begin(), c->nodes[i].after.end());
        }
    }
    bool all = true;
    for (bool j : joined) {
        all = all && j;
    }
    for (emu_stream *t : streams) {
        if (t->capturing == c) {
            t->capturing = nullptr;
            t->tail.clear();
        }
    }
    for (size_t i = 0; i < captures.size(); i++) {
        if (captures[i] == c.get()) {
            captures.erase(captures.begin() + static_cast<long>(i));
            break;
        }
    }
    if (c->invalid) {
        return emu_result(cudaErrorStreamCaptureInvalidated);
    }
    if (!all) {
        return emu_result(cudaErrorStreamCaptureUnjoined);
    }
    *graph = new emu_graph{c->nodes};
    return emu_result(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    EMU_LOCK();
    emu_stream *s = stream_of(stream);
    *status = !s->capturing           ? cudaStreamCaptureStatusNone
              : s->capturing->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
    return emu_result(cudaSuccess);
}

void emu_count_captures_from_here(void)
{
    EMU_LOCK();
    n_captures = 0;
}

/* WEIR_EMU_GRAPHS: so many more can be made, then memory is out; WEIR_EMU_GRAPH_KIB: what each takes
 * of the device. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    EMU_LOCK();
    const size_t bytes = number_of("WEIR_EMU_GRAPH_KIB", 0) << 10;
    *exec = nullptr;
    if (graphs_alive >= number_of("WEIR_EMU_GRAPHS", UINT32_MAX) || !emu_take_device_bytes(bytes)) {
        return emu_result(cudaErrorMemoryAllocation);
    }
    graphs_alive++;
    *exec = new emu_graph_exec{std::make_shared<std::vector<node>>(graph->nodes), bytes};
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    EMU_LOCK();
    auto nodes = exec->nodes;
    return emu_result(add(stream, "a graph", [nodes] {
        std::vector<bool> done(nodes->size());
        std::vector<size_t> ready;
        for (size_t left = nodes->size(); left; left--) {
            ready.clear();
            for (size_t i = 0; i < nodes->size(); i++) {
                bool can = !done[i];
                for (size_t a : (*nodes)[i].after) {
                    can = can && done[a];
                }
                if (can) {
                    ready.push_back(i);
                    if (emu_order_now() == EMU_PLAIN) {
                        break;
                    }
                }
            }
            size_t i = emu_order_now() == EMU_PLAIN      ? ready.front()
                       : emu_order_now() == EMU_REVERSED ? ready.back()
                                                         : ready[emu_draw() % ready.size()];
            if (emu_sticky == cudaSuccess) {
                (*nodes)[i].run();
            }
            done[i] = true;
        }
    }));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    EMU_LOCK();
    if (nodes) {
        return emu_result(cudaErrorNotSupported); /* only how many there are */
    }
    *n = graph->nodes.size();
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    EMU_LOCK();
    delete graph;
    return emu_result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    EMU_LOCK();
    graphs_alive -= exec != nullptr;
    emu_give_device_bytes(exec ? exec->device_bytes : 0);
    delete exec;
    return emu_result(cudaSuccess);
}
