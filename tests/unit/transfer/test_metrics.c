/* test_metrics.c - what ends is counted once, where it belongs; both texts say the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/mooncake.h>

#include "base/clock.h"
#include "transfer/metrics.h"

/* ---- Counters ---- */

#define LARGE (METRICS_SMALL + 1)

static struct link_values values_of(struct link_metrics *link) {
    struct link_values values = {0};

    metrics_add_values(link, &values);
    return values;
}

static struct link_metrics *new_link(struct metrics **ret_metrics) {
    struct metrics_peer *peer;
    struct link_metrics *link;

    *ret_metrics = metrics_new();
    assert_non_null(*ret_metrics);
    peer = metrics_join(*ret_metrics, "127.0.0.1:1");
    assert_non_null(peer);
    link = metrics_link(*ret_metrics, peer, 1);
    assert_non_null(link);
    assert_ptr_equal(metrics_link(*ret_metrics, peer, 1), link);
    return link;
}

static void requests_are_counted_by_opcode_with_their_bytes(void **state) {
    struct metrics *metrics;
    struct link_metrics *link = new_link(&metrics);
    struct link_values values;

    (void)state;
    for (int i = 0; i < 70; i++)
        metrics_ended(link, MC_READ, 4096, 4096, MC_OK, 0);
    metrics_ended(link, MC_WRITE, METRICS_SMALL, METRICS_SMALL, MC_OK, 0);
    metrics_ended(link, MC_WRITE, LARGE, LARGE, MC_OK, 0);
    for (int i = 0; i < 30; i++)
        metrics_ended(link, MC_WRITE, 4096, 7, MC_ERR_TIMEOUT, 1);
    values = values_of(link);
    assert_int_equal(values.requests[MC_READ], 70);
    assert_int_equal(values.bytes[MC_READ], 70 * 4096);
    assert_int_equal(values.requests[MC_WRITE], 32);
    assert_int_equal(values.bytes[MC_WRITE], 2 * METRICS_SMALL + 1 + 30 * 7);
    assert_int_equal(values.failed, 30);
    for (size_t i = 0; i < METRICS_STATUSES; i++)
        assert_int_equal(values.failures[i], metrics_status(i) == MC_ERR_TIMEOUT ? 30 : 0);
    assert_int_equal(values.latency[METRICS_OF_SMALL].count, 0);
    metrics_free(metrics);
}

static void every_code_has_a_counter_and_unknown_ones_are_internal_errors(void **state) {
    struct metrics *metrics;
    struct link_metrics *link = new_link(&metrics);
    struct link_values values;
    uint64_t codes = 0;

    (void)state;
#define FAIL(name, code, retryable, python, text)      \
    if ((code) != MC_OK) {                             \
        metrics_ended(link, MC_READ, 1, 0, (code), 0); \
        codes++;                                       \
    }
    MC_STATUS_TABLE(FAIL)
#undef FAIL
    metrics_ended(link, MC_READ, 1, 0, -12345, 0);
    values = values_of(link);
    assert_int_equal(values.failed, codes + 1);
    for (size_t i = 0; i < METRICS_STATUSES; i++)
        assert_int_equal(values.failures[i], metrics_status(i) == MC_OK             ? 0
                                             : metrics_status(i) == MC_ERR_INTERNAL ? 2
                                                                                    : 1);
    metrics_free(metrics);
}

static void of_small_requests_one_in_16_is_observed_and_of_large_ones_all(void **state) {
    struct metrics *metrics;
    struct link_metrics *link = new_link(&metrics);
    struct link_values values;
    uint64_t started = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        uint64_t start = metrics_begin(link, MC_READ, 64);

        started += start != 0;
        metrics_ended(link, MC_READ, 64, 64, MC_OK, start);
        metrics_ended(link, MC_WRITE, 64, 64, MC_OK, clock_now());
        metrics_ended(link, MC_READ, LARGE, LARGE, MC_OK, clock_now());
        metrics_ended(link, MC_READ, LARGE, 0, MC_ERR_CANCELLED, clock_now());
    }
    values = values_of(link);
    assert_true(metrics_begin(link, MC_READ, LARGE) != 0);
    assert_int_equal(started, 7);
    assert_int_equal(values.latency[METRICS_OF_SMALL].count, 14);
    assert_int_equal(values.latency[METRICS_OF_LARGE].count, 100);
    metrics_free(metrics);
}

static void a_latency_is_in_the_first_bucket_that_holds_it(void **state) {
    /* How long ago it began, and the buckets that may have it by the time it is looked at. */
    static const struct {
        uint64_t ago;
        size_t bucket;
    } cases[] = {
        {20 * CLOCK_SECOND, 28},   /* up to 33.5 s */
        {60 * CLOCK_SECOND, 29},   /* up to 67.1 s */
        {68 * CLOCK_SECOND, 30},   /* longer */
        {3600 * CLOCK_SECOND, 30}, /* longer */
    };
    struct metrics *metrics;
    struct link_metrics *link = new_link(&metrics);
    uint64_t now = clock_now();
    size_t count = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct link_values before = values_of(link), after;

        if (now <= cases[i].ago) {
            print_message("this host has not been up for an hour\n");
            continue;
        }
        metrics_ended(link, MC_READ, LARGE, LARGE, MC_OK, now - cases[i].ago);
        after = values_of(link);
        count++;
        assert_int_equal(after.latency[METRICS_OF_LARGE].count, count);
        assert_int_equal(after.latency[METRICS_OF_LARGE].buckets[cases[i].bucket],
                         before.latency[METRICS_OF_LARGE].buckets[cases[i].bucket] + 1);
        assert_true(after.latency[METRICS_OF_LARGE].sum - before.latency[METRICS_OF_LARGE].sum >= cases[i].ago);
    }
    metrics_ended(link, MC_READ, LARGE, LARGE, MC_OK, UINT64_MAX); /* a clock that went backwards, if there were one */
    assert_int_equal(values_of(link).latency[METRICS_OF_LARGE].buckets[0], 1);
    metrics_free(metrics);
}

#define THREADS 4
#define EACH 500000u /* so many that the threads meet */

static void *count_many(void *link) {
    for (unsigned int i = 0; i < EACH; i++)
        metrics_ended(link, MC_WRITE, METRICS_SMALL, METRICS_SMALL, MC_OK, 0);
    return NULL;
}

static void nothing_is_lost_or_counted_twice_by_many_threads(void **state) {
    const uint64_t all = THREADS * EACH;
    struct metrics *metrics;
    struct link_metrics *link = new_link(&metrics);
    pthread_t threads[THREADS];
    uint64_t seen = 0;

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, link), 0);
    while (seen < all) {
        uint64_t requests = values_of(link).requests[MC_WRITE];

        assert_in_range(requests, seen, all);
        seen = requests;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(values_of(link).requests[MC_WRITE], all);
    assert_int_equal(values_of(link).bytes[MC_WRITE], all * METRICS_SMALL);
    metrics_free(metrics);
}

/* ---- Rows ---- */

static void an_address_has_one_row_that_outlives_its_peers(void **state) {
    struct metrics *metrics = metrics_new();
    struct metrics_peer *one, *other;

    (void)state;
    one = metrics_join(metrics, "h:1");
    assert_ptr_equal(metrics_join(metrics, "h:1"), one);
    other = metrics_join(metrics, "h:2");
    assert_ptr_not_equal(other, one);
    assert_non_null(metrics_link(metrics, one, 2));
    metrics_leave(metrics, one);
    metrics_leave(metrics, one);
    assert_ptr_equal(metrics_join(metrics, "h:1"), one);
    assert_int_equal(metrics->peer_count, 2);
    metrics_leave(metrics, other); /* no path ever led there */
    assert_int_equal(metrics->peer_count, 1);
    metrics_free(metrics);
}

static void addresses_beyond_the_limit_share_a_row(void **state) {
    struct metrics *metrics = metrics_new();
    struct metrics_peer *last = NULL;
    char address[32];

    (void)state;
    for (unsigned int i = 0; i < METRICS_PEERS + 10; i++) {
        snprintf(address, sizeof(address), "h:%u", i);
        last = metrics_join(metrics, address);
        assert_non_null(last);
        assert_non_null(metrics_link(metrics, last, 2));
    }
    assert_string_equal(last->address, "other");
    assert_int_equal(last->users, 10);
    assert_int_equal(metrics->peer_count, METRICS_PEERS + 1);
    metrics_free(metrics);
}

/* ---- Texts ---- */

static char *text_of(struct metrics *metrics, uint32_t format) {
    const struct metrics_engine engine = {
        .address = "127.0.0.1:9",
        .transports = {"self", "shm", "tcp"},
        .sessions = {4, 5, 6},
        .received = 7,
        .overflowed = 8,
        .regions = 9,
        .region_bytes = 10,
        .batches = 11,
        .peers = 12,
    };
    struct writer writer;
    char *text;

    writer_init(&writer, NULL, 0);
    metrics_write(metrics, format, &engine, &writer);
    text = malloc(writer.length + 1);
    assert_non_null(text);
    writer_init(&writer, text, writer.length + 1);
    metrics_write(metrics, format, &engine, &writer);
    return text;
}

static void expect_all(const char *text, const char *const *parts) {
    for (; *parts != NULL; parts++)
        if (strstr(text, *parts) == NULL)
            fail_msg("\"%s\" is not in\n%s", *parts, text);
}

static void both_texts_have_every_counter(void **state) {
    static const char *const json[] = {
        "\"peer\":\"127.0.0.1:1\",\"transport\":\"shm\",\"requests\":{\"read\":70,\"write\":30}",
        "\"completed\":70,\"failed\":30,\"failures\":{\"MC_ERR_TIMEOUT\":20,\"MC_ERR_GUARD_MISMATCH\":10}",
        "\"total\":{\"requests\":{\"read\":70,\"write\":30},\"bytes\":{\"read\":7000,\"write\":0}",
        "\"small\":{\"count\":5,",
        "\"large\":{\"count\":0,\"sum\":0,\"buckets\":[]}",
        "\"notified\":1,\"unnotified\":2",
        "\"open_peers\":12,\"batches_in_flight\":11",
        "\"notifications\":{\"received\":7,\"overflowed\":8}",
        "\"sessions\":{\"accepted\":4,\"refused\":5,\"broken\":6}",
        "\"regions\":{\"count\":9,\"bytes\":10}}",
        NULL,
    };
    static const char *const prometheus[] = {
        "# HELP mooncake_transfer_requests_total ",
        "# TYPE mooncake_transfer_requests_total counter\n",
        "\nmooncake_transfer_requests_total{peer=\"127.0.0.1:1\",transport=\"shm\",opcode=\"read\"} 70\n",
        "\nmooncake_transfer_requests_total{peer=\"127.0.0.1:1\",transport=\"shm\",opcode=\"write\"} 30\n",
        "\nmooncake_transfer_bytes_total{peer=\"127.0.0.1:1\",transport=\"shm\",opcode=\"read\"} 7000\n",
        "\nmooncake_transfer_failures_total{peer=\"127.0.0.1:1\",transport=\"shm\",status=\"MC_ERR_TIMEOUT\"} 20\n",
        "# TYPE mooncake_transfer_latency_seconds histogram\n",
        "transport=\"shm\",size=\"small\",le=\"+Inf\"} 5\n",
        "\nmooncake_transfer_latency_seconds_count{peer=\"127.0.0.1:1\",transport=\"shm\",size=\"small\"} 5\n",
        "\nmooncake_transfer_notifications_sent_total{peer=\"127.0.0.1:1\"} 1\n",
        "\nmooncake_transfer_notifications_unsent_total{peer=\"127.0.0.1:1\"} 2\n",
        "\nmooncake_transfer_notifications_received_total 7\n",
        "\nmooncake_transfer_sessions_broken_total 6\n",
        "# TYPE mooncake_transfer_registered_bytes gauge\nmooncake_transfer_registered_bytes 10\n",
        "\nmooncake_transfer_batches_in_flight 11\n",
        "\nmooncake_transfer_open_peers 12\n",
        NULL,
    };
    struct metrics *metrics;
    struct link_metrics *link = new_link(&metrics);
    struct metrics_peer *peer = metrics_join(metrics, "127.0.0.1:1");
    char *text;

    (void)state;
    for (int i = 0; i < 70; i++)
        metrics_ended(link, MC_READ, 100, 100, MC_OK, 1);
    for (int i = 0; i < 30; i++)
        metrics_ended(link, MC_WRITE, 100, 0, i < 20 ? MC_ERR_TIMEOUT : MC_ERR_GUARD_MISMATCH, 1);
    metrics_notified(peer, MC_OK);
    metrics_notified(peer, MC_ERR_QUEUE_FULL);
    metrics_notified(peer, MC_ERR_TIMEOUT);
    text = text_of(metrics, MC_METRICS_JSON);
    expect_all(text, json);
    free(text);
    text = text_of(metrics, MC_METRICS_PROMETHEUS);
    expect_all(text, prometheus);
    free(text);
    metrics_free(metrics);
}

static void label_values_are_escaped(void **state) {
    struct metrics *metrics = metrics_new();
    struct metrics_peer *peer = metrics_join(metrics, "a\"b\\c\nd");
    char *text;

    (void)state;
    assert_non_null(metrics_link(metrics, peer, 2));
    text = text_of(metrics, MC_METRICS_PROMETHEUS);
    assert_non_null(strstr(text, "{peer=\"a\\\"b\\\\c\\nd\",transport=\"tcp\""));
    free(text);
    text = text_of(metrics, MC_METRICS_JSON);
    assert_non_null(strstr(text, "\"peer\":\"a\\\"b\\\\c\\u000ad\""));
    free(text);
    metrics_free(metrics);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_counted_by_opcode_with_their_bytes),
        cmocka_unit_test(every_code_has_a_counter_and_unknown_ones_are_internal_errors),
        cmocka_unit_test(of_small_requests_one_in_16_is_observed_and_of_large_ones_all),
        cmocka_unit_test(a_latency_is_in_the_first_bucket_that_holds_it),
        cmocka_unit_test(nothing_is_lost_or_counted_twice_by_many_threads),
        cmocka_unit_test(an_address_has_one_row_that_outlives_its_peers),
        cmocka_unit_test(addresses_beyond_the_limit_share_a_row),
        cmocka_unit_test(both_texts_have_every_counter),
        cmocka_unit_test(label_values_are_escaped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
