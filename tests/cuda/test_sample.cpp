/* Choosing on the device what the host would choose: random cases over small vocabularies against
 * sample_token, corners, large rows, and the same token whoever chooses beside. */
#include "../few.h"
#include "on_device.h"

#include "backend/cuda/sample.h"

extern "C" {
#include "sample/sample.h"
}

/* A job, and what the host needs for the same. */
struct one_case {
    sample_params p;
    uint64_t position;
    std::vector<logit_bias> bias;
    std::vector<int32_t> prompt, output;
    std::vector<float> logits;
};

static sample_history *host_history(const one_case &c)
{
    sample_history *h;
    const size_t n = c.prompt.size() + c.output.size() + 1;
    if (!sample_history_create(&c.p, n, UINT32_MAX, &h))
        abort();
    for (int32_t id : c.prompt)
        sample_history_add(h, id, false);
    for (int32_t id : c.output)
        sample_history_add(h, id, true);
    return h;
}

static int32_t host_choice(const one_case &c)
{
    const uint32_t n = (uint32_t)c.logits.size();
    sample_params p = c.p;
    std::vector<float> x = c.logits;
    sample_scratch *s = sample_scratch_create(n);
    sample_history *h = host_history(c);
    p.bias = c.bias.data();
    p.n_bias = (uint32_t)c.bias.size();
    const int32_t id = sample_token(&p, h, c.position, x.data(), n, nullptr, s);
    sample_history_destroy(h);
    sample_scratch_destroy(s);
    return id;
}

/* All cases in one launch; their rows lie in turn, from the last. */
static std::vector<int32_t> device_choices(const std::vector<one_case> &cases, uint32_t more)
{
    const uint32_t n = (uint32_t)cases.size(), n_vocab = (uint32_t)cases[0].logits.size();
    const size_t stride = n_vocab + 3;
    step_on_device st;
    std::vector<cuda_sample_job> jobs;
    std::vector<cuda_bias> biases(1);
    std::vector<float> rows(n * stride, NAN);
    device_array<uint32_t> counts(std::vector<uint32_t>((size_t)n * n_vocab, 99));
    cuda_histories h = {counts.p};
    std::vector<uint32_t> want((size_t)n * n_vocab, 99);
    for (uint32_t i = 0; i < n; i++) {
        const one_case &c = cases[i];
        cuda_sample_job j = {};
        j.logit_row = n - 1 - i;
        j.slot = UINT32_MAX;
        j.position = c.position;
        j.seed = c.p.seed;
        j.temperature = c.p.temperature;
        j.top_k = c.p.top_k;
        j.top_p = c.p.top_p;
        j.min_p = c.p.min_p;
        j.repetition_penalty = c.p.repetition_penalty;
        j.presence_penalty = c.p.presence_penalty;
        j.frequency_penalty = c.p.frequency_penalty;
        j.temperature_last = c.p.temperature_last;
        j.first_bias = (uint32_t)biases.size();
        j.n_bias = (uint32_t)c.bias.size();
        for (const logit_bias &b : c.bias)
            biases.push_back(cuda_bias{b.id, b.bias});
        sample_history *history = host_history(c);
        if (history) {
            j.slot = i;
            on_device_ok(cuda_history_begin(&h, n_vocab, i, 0));
            device_array<int32_t> prompt(c.prompt), output(c.output);
            on_device_ok(
                cuda_history_add(&h, n_vocab, i, prompt.p, (uint32_t)c.prompt.size(), 0, 0));
            on_device_ok(
                cuda_history_add(&h, n_vocab, i, output.p, (uint32_t)c.output.size(), 1, 0));
            on_device_ok(cudaDeviceSynchronize());
            uint32_t *held = &want[(size_t)i * n_vocab];
            memset(held, 0, n_vocab * sizeof *held);
            for (int32_t id : c.prompt)
                if (id >= 0 && (uint32_t)id < n_vocab)
                    held[id] |= 1;
            for (int32_t id : c.output)
                if (id >= 0 && (uint32_t)id < n_vocab)
                    held[id] += 2;
        }
        sample_history_destroy(history);
        jobs.push_back(j);
        memcpy(&rows[j.logit_row * stride], c.logits.data(), n_vocab * sizeof(float));
    }
    st.counts.n_jobs = n;
    device_array<cuda_sample_job> d_jobs(jobs);
    device_array<cuda_bias> d_biases(biases);
    device_array<float> d_rows(rows);
    device_array<int32_t> chosen(std::vector<int32_t>(n + more, -7));
    cuda_at at = st.at(CUDA_ROWS_LOGITS, more);
    device_array<uint8_t> scratch(
        std::vector<uint8_t>(cuda_sample_scratch(at.bounds.jobs, n_vocab), 0xcc));
    cuda_sample(
        &at, d_jobs.p, d_biases.p, &h, cuda_buf{d_rows.p, stride}, n_vocab, chosen.p, scratch.p);
    std::vector<int32_t> ids = chosen.get();
    for (uint32_t i = 0; i < more; i++)
        assert_int_equal(ids[n + i], -7);
    ids.resize(n);
    /* what was chosen is in the histories from now on */
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == SAMPLE_NO_NUMBER)
            continue;
        assert_in_range(ids[i], 0, n_vocab - 1);
        if (jobs[i].slot != UINT32_MAX)
            want[(size_t)i * n_vocab + (uint32_t)ids[i]] += 2;
    }
    assert_memory_equal(counts.get().data(), want.data(), want.size() * sizeof(uint32_t));
    return ids;
}

static one_case random_case(uint32_t n)
{
    one_case c;
    const double spread = pow(10, random_unit() * 3 - 1);
    const bool ties = random_unit() < 0.4, flat = random_unit() < 0.05;
    c.p = sample_params_default();
    c.position = random_u64() >> random_below(64);
    for (uint32_t i = 0; i < n; i++) {
        const double g = random_normal();
        c.logits.push_back((float)(flat ? 1.5 : ties ? round(g * 3) : g * spread));
        if (random_unit() < 0.002)
            c.logits[i] = random_unit() < 0.5 ? NAN : -INFINITY;
    }
    c.p.temperature = random_unit() < 0.1 ? 0 : (float)(0.1 + random_unit() * 2);
    if (random_unit() < 0.5)
        c.p.top_k = (int32_t)pow(n, random_unit()) + (random_unit() < 0.5);
    if (random_unit() < 0.5)
        c.p.top_p = (float)(0.05 + 0.95 * random_unit());
    if (random_unit() < 0.3)
        c.p.min_p = (float)(random_unit() * random_unit());
    c.p.temperature_last = random_unit() < 0.3;
    c.p.seed = random_u64();
    if (random_unit() < 0.2)
        c.p.repetition_penalty = (float)(0.8 + random_unit());
    if (random_unit() < 0.2)
        c.p.presence_penalty = (float)(random_unit() * 4 - 2);
    if (random_unit() < 0.2)
        c.p.frequency_penalty = (float)(random_unit() * 2 - 1);
    for (uint32_t i = random_below(40); i > 0; i--) {
        c.prompt.push_back((int32_t)random_below(n));
        c.output.push_back((int32_t)random_below(n > 9 ? 9 : n));
    }
    for (uint32_t i = random_unit() < 0.3 ? random_below(20) : 0; i > 0; i--)
        c.bias.push_back(logit_bias{(int32_t)random_below(n + 2) - 1,
                                    random_unit() < 0.1 ? -INFINITY : random_normal() * 5});
    return c;
}

static void test_same_as_the_host(void **state)
{
    (void)state;
    enum { JOBS = 40 };
    const int rounds = few_shapes() ? 6 : 250;
    uint32_t n_other = 0;
    for (int round = 0; round < rounds; round++) {
        const uint32_t n = 1 + (uint32_t)pow(round % 10 ? 300 : 5000, random_unit());
        std::vector<one_case> cases;
        for (int i = 0; i < JOBS; i++)
            cases.push_back(random_case(n));
        const std::vector<int32_t> got = device_choices(cases, random_below(3));
        for (int i = 0; i < JOBS; i++) {
            const int32_t want = host_choice(cases[i]);
            if (got[i] == want)
                continue;
            const sample_params &p = cases[i].p;
            print_message("n %u k %d p %.9g min_p %.9g T %.9g%s: %d, the host has %d\n",
                          n,
                          p.top_k,
                          p.top_p,
                          p.min_p,
                          p.temperature,
                          p.temperature_last ? " last" : "",
                          got[i],
                          want);
            n_other++;
        }
        /* alone, the same */
        if (round % 25 == 0)
            for (int i = 0; i < 4; i++)
                assert_int_equal(device_choices({cases[i]}, 1)[0], got[i]);
    }
    print_message("%u of %d choices differ from the host's\n", n_other, rounds * JOBS);
    assert_true(n_other <= (uint32_t)(rounds * JOBS) / 1000);
}

static one_case plain_case(const std::vector<float> &logits)
{
    one_case c;
    c.p = sample_params_default();
    c.position = 3;
    c.logits = logits;
    return c;
}

static void test_corners(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN;
    std::vector<one_case> cases;
    for (const std::vector<float> &x : {std::vector<float>{nan, nan, nan, nan},
                                        std::vector<float>{nan, -inf, -inf, nan},
                                        std::vector<float>{1, inf, nan, inf},
                                        std::vector<float>{-inf, -1e30f, nan, -inf},
                                        std::vector<float>{0.0f, -0.0f, 0.0f, -0.0f},
                                        std::vector<float>{nan, 2, 2, 1},
                                        std::vector<float>{3e38f, -3e38f, 3e38f, 0}}) {
        for (int form = 0; form < 8; form++) {
            one_case c = plain_case(x);
            c.p.temperature = form == 0 ? 0 : form == 1 ? 1e-40f : 1;
            c.p.top_k = form == 2 ? 1 : form == 3 ? 2 : form == 6 ? 3 : 0;
            c.p.top_p = form == 4 ? 0 : form == 5 || form == 6 ? 0.6f : 1;
            c.p.min_p = form == 7 ? 1 : 0;
            for (c.position = 0; c.position < 3; c.position++)
                cases.push_back(c);
        }
    }
    const std::vector<int32_t> got = device_choices(cases, 0);
    for (size_t i = 0; i < cases.size(); i++)
        assert_int_equal(got[i], host_choice(cases[i]));
}

/* As many as a vocabulary has; more candidates than are listed. */
static void test_large(void **state)
{
    (void)state;
    for (uint32_t n : {2048u, 2049u, 20000u, 260000u}) {
        if (few_shapes() && n != 20000)
            continue;
        std::vector<one_case> cases;
        for (int form = 0; form < 8; form++) {
            one_case c = plain_case(random_floats(n, form % 2 ? 3 : 0.1f));
            if (form == 6) /* all equal */
                c.logits.assign(n, 2.5f);
            c.position = random_u64();
            c.p.top_k = form == 2 ? 40 : form == 3 || form == 6 ? (int32_t)n - 1000 : 0;
            c.p.top_p = form == 4 || form == 6 ? 0.95f : form == 5 ? 0.3f : 1;
            c.p.temperature = form == 7 ? 0 : 1;
            cases.push_back(c);
        }
        const std::vector<int32_t> got = device_choices(cases, 0);
        for (size_t i = 0; i < cases.size(); i++)
            if (got[i] != host_choice(cases[i]))
                fail_msg(
                    "n %u, form %zu: %d, the host has %d", n, i, got[i], host_choice(cases[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corners),
        cmocka_unit_test(test_same_as_the_host),
        cmocka_unit_test(test_large),
    };
    random_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
