/* Loads, stores and copies: where each lane's address lies, and whether it may be touched. */
#include "ptx.h"

#include <algorithm>
#include <string.h>

namespace
{

device_memory last; /* that was touched */

const char *name_of(enum space s)
{
    static const char *const names[] = {"global", "shared", "local", "parameters'"};
    return names[s];
}

uint8_t *shared_at(warp &w, int lane, uint64_t address, const reach &a)
{
    block &b = *w.in;
    const uint64_t offset = address - SHARED_BASE;
    if (address < SHARED_BASE || offset + a.bytes > b.shared.size()) {
        fault(w,
              lane,
              "%u bytes of shared memory at %lld of %zu",
              a.bytes,
              static_cast<long long>(offset),
              b.shared.size());
    }
    if (!b.tracks)
        return b.shared.data() + offset;
    if (w.fn->has_bulk)
        (a.writes ? bulk_written : bulk_read)(w, lane, static_cast<uint32_t>(offset), a.bytes);
    if (!a.writes) {
        shared_settled(w, lane, static_cast<uint32_t>(offset), a.bytes);
        return b.shared.data() + offset;
    }
    if (b.open) {
        for (const warp *o : b.warps) {
            for (const range &r : o->reads) {
                if (offset < r.end && offset + a.bytes > r.begin)
                    fault(w, lane, "shared memory that a wgmma of warp %u reads is written", o->n);
            }
        }
    }
    for (uint64_t g = offset / GRANULE; g <= (offset + a.bytes - 1) / GRANULE; g++) {
        granule &s = b.granules[g];
        if (s.reader && s.reader != w.n + 1 && s.read_after == b.barriers)
            fault(
                w,
                lane,
                "shared memory at %llu, which a wgmma of warp %u read, is written with no barrier "
                "since",
                static_cast<unsigned long long>(offset),
                s.reader - 1u);
        if (s.state == granule::COPYING)
            fault(w,
                  lane,
                  "shared memory at %llu is written beside a cp.async to it",
                  static_cast<unsigned long long>(offset));
        s = {granule::WRITTEN,
             static_cast<uint8_t>(w.n),
             b.barriers,
             w.proxy_fences,
             0,
             0,
             w.moment};
    }
    return b.shared.data() + offset;
}

template <class T, int n> void load(warp &w, const insn &i, uint32_t m)
{
    uint8_t *host[LANES];
    lanes_at(w, i, m, n, 0, {static_cast<enum space>(i.space), sizeof(T) * n, false}, host);
    for (int k = 0; k < n; k++) {
        uint8_t *d = w.at<uint8_t>(i.op[k]);
        for (int l = 0; l < LANES; l++) {
            if (!(m >> l & 1))
                continue;
            T v;
            memcpy(&v, host[l] + k * sizeof v, sizeof v);
            const int64_t x = static_cast<int64_t>(v);
            if (i.wide[0] == 4)
                memcpy(d + l * 4, &x, 4);
            else
                memcpy(d + l * i.wide[0], &x, i.wide[0]);
        }
    }
}

template <class T, int n> void store(warp &w, const insn &i, uint32_t m)
{
    uint8_t *host[LANES];
    lanes_at(w, i, m, 0, 0, {static_cast<enum space>(i.space), sizeof(T) * n, true}, host);
    for (int k = 0; k < n; k++) {
        const uint8_t *s = w.at<uint8_t>(i.op[k + 1]);
        for (int l = 0; l < LANES; l++) {
            if (m >> l & 1)
                memcpy(host[l] + k * sizeof(T), s + l * i.wide[0], sizeof(T));
        }
    }
}

template <class T> form of_count(bool loads, int n)
{
    static const form all[2][3] = {{store<T, 1>, store<T, 2>, store<T, 4>},
                                   {load<T, 1>, load<T, 2>, load<T, 4>}};
    return all[loads][n / 2];
}

form of_type(const std::string &type, bool loads, int n)
{
    const bool is_signed = type[0] == 's';
    const std::string bits = type.substr(1);
    if (bits == "8")
        return is_signed ? of_count<int8_t>(loads, n) : of_count<uint8_t>(loads, n);
    if (bits == "16")
        return is_signed ? of_count<int16_t>(loads, n) : of_count<uint16_t>(loads, n);
    if (bits == "32")
        return is_signed ? of_count<int32_t>(loads, n) : of_count<uint32_t>(loads, n);
    return bits == "64" ? of_count<uint64_t>(loads, n) : nullptr;
}

} // namespace

/* ld[.SPACE][.nc|.cg][.L1::no_allocate][.L2::256B][.v2|.v4].TYPE, st likewise. Without a space it
 * is global memory: generic addresses of shared memory lead nowhere (cvta.shared). */
bool form_memory(const std::string &op, insn &i)
{
    static const struct {
        const char *name;
        enum space space;
    } spaces[] = {{"global.", GLOBAL}, {"shared.", SHARED}, {"local.", LOCAL}, {"param.", PARAM}};
    const bool loads = op[0] == 'l';
    size_t at = 3;
    i.space = GLOBAL;
    for (const auto &s : spaces) {
        if (op.compare(at, strlen(s.name), s.name) == 0) {
            i.space = s.space;
            at += strlen(s.name);
            break;
        }
    }
    for (const char *way : {"nc.", "cg.", "L1::no_allocate.", "L2::256B."}) /* through caches */
        at += op.compare(at, strlen(way), way) == 0 ? strlen(way) : 0;
    int n = 1;
    if (op.compare(at, 3, "v2.") == 0 || op.compare(at, 3, "v4.") == 0) {
        n = op[at + 1] - '0';
        at += 3;
    }
    i.run = of_type(op.substr(at), loads, n);
    i.n_dst = static_cast<uint16_t>(loads ? n : 0);
    i.n_src = static_cast<uint16_t>(loads ? 1 : n + 1);
    return i.run != nullptr;
}

void ranges_forget()
{
    last = {};
}

uint64_t address_of(const warp &w, const insn &i, unsigned op, int n, int l)
{
    return static_cast<uint64_t>(i.plus[n]) +
           (i.address_wide[n] == 8 ? w.at<uint64_t>(i.op[op])[l] : w.at<uint32_t>(i.op[op])[l]);
}

void global_settled(const warp &w, int lane, uint64_t x, uint64_t bytes)
{
    if ((x < last.begin || x + bytes > last.end) &&
        (!device_range(x, &last) || x + bytes > last.end))
        fault(w,
              lane,
              "%llu bytes of global memory at %#llx, which are in no allocation",
              static_cast<unsigned long long>(bytes),
              static_cast<unsigned long long>(x));
    const uint64_t from = (x - last.begin) / 4, to = (x + bytes - last.begin + 3) / 4;
    if (w.early >> lane & 1 && memchr(last.by_kernel + from, 1, to - from))
        fault(w, lane, "what a kernel has written is read before griddepcontrol.wait");
}

void shared_settled(const warp &w, int lane, uint32_t offset, unsigned bytes)
{
    const block &b = *w.in;
    for (uint32_t g = offset / GRANULE; b.tracks && g <= (offset + bytes - 1) / GRANULE; g++) {
        const granule &s = b.granules[g];
        if (s.state == granule::COPYING)
            fault(w,
                  lane,
                  "shared memory at %u is read before a cp.async to it was waited for",
                  offset);
        if (s.state == granule::COPIED && s.warp != w.n && s.barriers == b.barriers)
            fault(w,
                  lane,
                  "shared memory at %u, where a cp.async of warp %u has written, is read "
                  "with no barrier since",
                  offset,
                  s.warp);
    }
}

void lanes_at(warp &w, const insn &i, uint32_t m, unsigned op, int n, reach a, uint8_t *host[])
{
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        const uint64_t x = address_of(w, i, op, n, l);
        if (x % a.bytes)
            fault(w,
                  l,
                  "an access of %u bytes of %s memory at %#llx, which is not aligned to them",
                  a.bytes,
                  name_of(a.space),
                  static_cast<unsigned long long>(x));
        switch (a.space) {
        case GLOBAL:
            if (a.writes && w.early >> l & 1)
                fault(w, l, "global memory is written before griddepcontrol.wait");
            global_settled(w, l, x, a.bytes);
            if (a.writes)
                memset(last.by_kernel + (x - last.begin) / 4, 1, (a.bytes + 3) / 4);
            host[l] = reinterpret_cast<uint8_t *>(x);
            break;
        case SHARED:
            host[l] = shared_at(w, l, x, a);
            break;
        case LOCAL:
            if (x + a.bytes > w.fn->local)
                fault(w,
                      l,
                      "local memory at %llu of %u",
                      static_cast<unsigned long long>(x),
                      w.fn->local);
            host[l] = w.local.data() + static_cast<size_t>(l) * w.fn->local + x;
            break;
        case PARAM:
            if (a.writes || x + a.bytes > w.fn->param_bytes)
                fault(w,
                      l,
                      "parameters' memory at %llu of %u",
                      static_cast<unsigned long long>(x),
                      w.fn->param_bytes);
            host[l] = const_cast<uint8_t *>(w.in->params) + x;
        }
    }
}

/* To shared memory, from global, of 16 bytes so many as the last operand says: the rest is 0. It
 * is copied here and now, and known to be on its way till its thread has waited. */
void cp_async(warp &w, const insn &i, uint32_t m)
{
    uint8_t *to[LANES], *from[LANES];
    block &b = *w.in;
    const uint32_t *bytes = w.at<uint32_t>(i.op[2]);
    const uint32_t *used = i.n_src > 3 ? w.at<uint32_t>(i.op[3]) : bytes;
    uint32_t read = 0;
    b.tracks = true;
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        if (bytes[l] != 16 || used[l] > 16)
            fault(w, l, "cp.async.cg of %u bytes, of which %u are read", bytes[l], used[l]);
        const uint64_t x = address_of(w, i, 1, 1, l);
        if (x % 16)
            fault(w, l, "cp.async from %#llx", static_cast<unsigned long long>(x));
        read |= static_cast<uint32_t>(used[l] != 0) << l;
    }
    lanes_at(w, i, m, 0, 0, {SHARED, 16, true}, to);
    lanes_at(w, i, read, 1, 1, {GLOBAL, 16, false}, from);
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        memset(to[l], 0, 16);
        if (used[l])
            memcpy(to[l], from[l], used[l]);
        const uint32_t g = static_cast<uint32_t>(to[l] - b.shared.data()) / GRANULE;
        b.granules[g].state = granule::COPYING;
        w.copies.push_back({static_cast<uint32_t>(l), w.committed[l], g});
    }
}

void cp_async_commit(warp &w, const insn &, uint32_t m)
{
    for (int l = 0; l < LANES; l++)
        w.committed[l] += m >> l & 1;
}

static void wait_for(warp &w, uint32_t m, uint32_t left, bool uncommitted)
{
    block &b = *w.in;
    const auto over = [&](const copy_on_its_way &c) {
        const bool waited =
            m >> c.lane & 1 && (uncommitted || c.group + left < w.committed[c.lane]);
        if (waited)
            b.granules[c.granule] = {granule::COPIED,
                                     static_cast<uint8_t>(w.n),
                                     b.barriers,
                                     w.proxy_fences,
                                     0,
                                     0,
                                     w.moment};
        return waited;
    };
    w.copies.erase(std::remove_if(w.copies.begin(), w.copies.end(), over), w.copies.end());
}

void cp_async_wait(warp &w, const insn &i, uint32_t m)
{
    wait_for(w, m, *w.at<uint32_t>(i.op[0]), false);
}

void cp_async_wait_all(warp &w, const insn &, uint32_t m)
{
    wait_for(w, m, 0, true);
}

/* The lanes one after another. */
template <bool sum> static void atom(warp &w, const insn &i, uint32_t m)
{
    uint8_t *host[LANES];
    uint32_t *d = w.at<uint32_t>(i.op[0]);
    const uint32_t *a = w.at<uint32_t>(i.op[2]);
    lanes_at(w, i, m, 1, 0, {static_cast<enum space>(i.space), 4, true}, host);
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        uint32_t old;
        memcpy(&old, host[l], 4);
        const uint32_t now = sum ? old + a[l] : old | a[l];
        memcpy(host[l], &now, 4);
        d[l] = old;
    }
}
void atom_add(warp &w, const insn &i, uint32_t m)
{
    atom<true>(w, i, m);
}
void atom_or(warp &w, const insn &i, uint32_t m)
{
    atom<false>(w, i, m);
}
