/* test_segments.c - segments that come and go while the store is open: of memory and of files, at once and with a grace.
 * Each test has a cluster of its own, whose pool ("pool") stays. */
#include "store_contract.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define EXTRA (8 * MIB)
#define PIECE ((size_t)100000)
#define LONG_GRACE (600 * SECOND)

static int32_t mount_named(mc_store *store, const char *name, char *ret_id) {
    const struct mc_segment_options options = {.struct_size = sizeof(options), .size = EXTRA, .name = name};

    return mc_store_mount(store, &options, ret_id, contract_error());
}

static int32_t put_in(mc_store *store, const char *segment, const char *key) {
    const struct mc_put_options options = {.struct_size = sizeof(options), .preferred_count = 1, .preferred = &segment};
    uint8_t *bytes = malloc(PIECE);
    int32_t status;

    value_make(bytes, PIECE, (uint32_t)key[strlen(key) - 1], 1);
    status = mc_store_put(store, TEXT(key), bytes, PIECE, &options, contract_error());
    free(bytes);
    return status;
}

static bool is_whole(mc_store *store, const char *key) {
    uint8_t *bytes = malloc(PIECE);
    bool whole =
        GET(store, key, bytes, PIECE) == (int64_t)PIECE && value_is_of(bytes, PIECE, (uint32_t)key[strlen(key) - 1]);

    free(bytes);
    return whole;
}

/* The segment's name of the one replica; "-": the object isn't there. */
static const char *lies_in(mc_store *store, const char *key) {
    static struct mc_replica replica;
    uint32_t length = (uint32_t)strlen(key);
    const struct mc_keys keys = {.bytes = key, .lengths = &length, .count = 1};
    int32_t count;

    if (mc_store_replicas(store, &keys, 0, &replica, 1, sizeof(replica), &count, contract_error()) != MC_OK)
        return "-";
    return count == 1 ? replica.segment : "-";
}

/* What the store says of a segment, from the name on; NULL: nothing. */
static const char *listed(mc_store *store, const char *name) {
    static char text[16384];
    char word[64];
    int64_t length = mc_store_segments(store, text, sizeof(text));

    assert_true(length >= 2 && (size_t)length < sizeof(text));
    snprintf(word, sizeof(word), "\"name\":\"%s\"", name);
    return strstr(text, word);
}

static bool has_state(mc_store *store, const char *name, const char *state) {
    const char *at = listed(store, name);
    const char *found = at != NULL ? strstr(at, "\"state\":\"") : NULL;

    return found != NULL && strncmp(found + strlen("\"state\":\""), state, strlen(state)) == 0;
}

static void await_state(mc_store *store, const char *name, const char *state) {
    uint64_t deadline = now_ns() + PROMPT;

    while (!has_state(store, name, state) && now_ns() < deadline)
        usleep(1000);
    assert_true(has_state(store, name, state));
}

static void await_unlisted(mc_store *store, const char *name) {
    uint64_t deadline = now_ns() + PROMPT;

    while (listed(store, name) != NULL && now_ns() < deadline)
        usleep(1000);
    assert_null(listed(store, name));
}

static void a_segment_that_was_mounted_takes_objects_at_once(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char id[MC_SEGMENT_ID_SIZE], second[MC_SEGMENT_ID_SIZE];

    (void)state;
    OK(mount_named(cluster->store, "more", id));
    OK(mount_named(cluster->store, "yet more", second));
    assert_int_equal(strlen(id), MC_SEGMENT_ID_SIZE - 1);
    assert_string_not_equal(id, second);
    assert_true(has_state(cluster->store, "more", "serving"));
    OK(put_in(cluster->store, "more", "a"));
    OK(put_in(cluster->store, "yet more", "b"));
    assert_string_equal(lies_in(cluster->store, "a"), "more");
    assert_string_equal(lies_in(cluster->store, "b"), "yet more");
    await_state(other, "yet more", "serving");
    assert_true(is_whole(other, "a") && is_whole(other, "b"));
    OK(put_in(other, "more", "c"));
    assert_string_equal(lies_in(other, "c"), "more");
    assert_true(is_whole(cluster->store, "c"));
    OK(mc_store_health(cluster->store));
    OK(mc_store_close(other));
    cluster_close(cluster);
}

static void what_is_unmounted_goes_with_what_it_holds_and_the_others_stay(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char id[MC_SEGMENT_ID_SIZE], second[MC_SEGMENT_ID_SIZE];

    (void)state;
    OK(mount_named(cluster->store, "more", id));
    OK(mount_named(cluster->store, "yet more", second));
    OK(put_in(cluster->store, "more", "a"));
    OK(put_in(cluster->store, "yet more", "b"));
    OK(put_in(cluster->store, "pool", "c"));
    assert_true(is_whole(other, "a") && is_whole(other, "b") && is_whole(other, "c"));
    OK(mc_store_unmount(cluster->store, id, 0, contract_error()));
    assert_null(listed(cluster->store, "more"));
    IS(0, EXISTS(other, "a"));
    IS(MC_ERR_NOT_FOUND, SIZE(cluster->store, "a"));
    assert_true(is_whole(other, "b") && is_whole(other, "c"));
    assert_true(is_whole(cluster->store, "b") && is_whole(cluster->store, "c"));
    IS(MC_ERR_SEGMENT_NOT_FOUND, mc_store_unmount(cluster->store, id, 0, contract_error()));
    OK(put_in(other, "more", "a")); /* somewhere else */
    assert_true(is_whole(cluster->store, "a"));
    await_unlisted(other, "more");
    OK(mc_store_health(cluster->store));
    OK(mc_store_close(other));
    cluster_close(cluster);
}

static void what_drains_is_read_and_takes_nothing_new(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char id[MC_SEGMENT_ID_SIZE], key[16];

    (void)state;
    OK(mount_named(cluster->store, "more", id));
    OK(put_in(cluster->store, "more", "a"));
    await_state(other, "more", "serving");
    OK(put_in(other, "more", "b"));
    OK(mc_store_unmount(cluster->store, id, LONG_GRACE, contract_error()));
    assert_true(has_state(cluster->store, "more", "draining"));
    await_state(other, "more", "draining");
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "new-%d", i);
        OK(put_in(other, "more", key));
        assert_string_equal(lies_in(other, key), "pool");
    }
    assert_true(is_whole(other, "a") && is_whole(cluster->store, "b"));
    assert_string_equal(lies_in(other, "a"), "more");
    OK(mc_store_unmount(cluster->store, id, 0, contract_error())); /* an end to it */
    IS(0, EXISTS(other, "a"));
    IS(0, EXISTS(other, "b"));
    assert_true(is_whole(other, "new-3"));
    OK(mc_store_close(other));
    cluster_close(cluster);
}

static void a_segment_goes_when_its_grace_ends(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    char id[MC_SEGMENT_ID_SIZE];
    uint64_t begin;

    (void)state;
    OK(mount_named(cluster->store, "more", id));
    OK(put_in(cluster->store, "more", "a"));
    begin = now_ns();
    OK(mc_store_unmount(cluster->store, id, SECOND, contract_error()));
    while (EXISTS(cluster->store, "a") == 1 && now_ns() < begin + SECOND + PROMPT)
        usleep(1000);
    IS(0, EXISTS(cluster->store, "a"));
    assert_true(now_ns() - begin >= SECOND);
    await_unlisted(cluster->store, "more");
    IS(MC_ERR_SEGMENT_NOT_FOUND, mc_store_unmount(cluster->store, id, 0, contract_error()));
    cluster_close(cluster);
}

static void a_put_in_steps_that_began_before_may_end_while_the_segment_drains(void **state) {
    static const char *const names[] = {"more"};
    struct cluster *cluster = cluster_open(EXTRA);
    const struct mc_put_options options = {.struct_size = sizeof(options), .preferred_count = 1, .preferred = names};
    struct mc_keys keys = keys_make("steps", 1);
    uint64_t length = PIECE, put;
    uint8_t *bytes = malloc(PIECE);
    struct mc_piece piece = {.address = bytes, .length = PIECE};
    uint32_t one = 1;
    int32_t status;
    int64_t written;
    char id[MC_SEGMENT_ID_SIZE];

    (void)state;
    value_make(bytes, PIECE, '0', 1);
    OK(mount_named(cluster->store, "more", id));
    OK(mc_store_put_begin(cluster->store, &keys, &length, &options, &put, &status, contract_error()));
    OK(mc_store_unmount(cluster->store, id, LONG_GRACE, contract_error()));
    OK(mc_store_put_write(cluster->store, &put, 1, &piece, &one, 0, &written, contract_error()));
    OK(mc_store_put_end(cluster->store, &put, 1, 0, &status, contract_error()));
    assert_true(is_whole(cluster->store, "steps-0"));
    assert_string_equal(lies_in(cluster->store, "steps-0"), "more");
    free(bytes);
    keys_free(&keys);
    cluster_close(cluster); /* doesn't wait for the grace */
}

static void a_view_stays_readable_when_its_segment_has_gone(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char id[MC_SEGMENT_ID_SIZE];
    const void *data[2];
    uint64_t views[2];

    (void)state;
    OK(mount_named(cluster->store, "more", id));
    OK(put_in(cluster->store, "more", "a"));
    IS(PIECE, VIEW(cluster->store, "a", &views[0], &data[0]));
    IS(PIECE, VIEW(other, "a", &views[1], &data[1]));
    OK(mc_store_unmount(cluster->store, id, 0, contract_error()));
    OK(mount_named(cluster->store, "more", id));
    for (int i = 0; i < 8; i++) {
        char key[16];

        snprintf(key, sizeof(key), "other-%d", i);
        OK(put_in(cluster->store, "more", key));
    }
    assert_true(value_is_of(data[0], PIECE, 'a') && value_is_of(data[1], PIECE, 'a'));
    OK(mc_view_release(views[0]));
    OK(mc_view_release(views[1]));
    OK(mc_store_close(other));
    cluster_close(cluster);
}

/* ---- Files ---- */

static void make_file(char *path, off_t size) {
    int fd;

    snprintf(path, 64, "/tmp/mooncake-segment-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

static bool file_has(const char *path, const void *bytes, size_t length, size_t from) {
    uint8_t *whole = malloc(EXTRA + 4096);
    int fd = open(path, O_RDONLY);
    ssize_t got = read(fd, whole, EXTRA + 4096);
    bool found = got > 0 && memmem(whole + from, (size_t)got - from, bytes, length) != NULL;

    close(fd);
    free(whole);
    return found;
}

static int32_t mount_file(mc_store *store, const char *path, uint64_t offset, uint64_t size, char *ret_id) {
    const struct mc_segment_options options = {
        .struct_size = sizeof(options), .size = size, .name = "file", .path = path, .offset = offset};

    return mc_store_mount(store, &options, ret_id, contract_error());
}

static void a_segment_of_a_file_holds_its_objects_there(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char path[64], id[MC_SEGMENT_ID_SIZE];
    uint8_t *bytes = malloc(PIECE);

    (void)state;
    make_file(path, EXTRA + 4096 + 100);
    value_make(bytes, PIECE, 'a', 1);
    OK(mount_file(cluster->store, path, 4096, 0, id));
    OK(put_in(cluster->store, "file", "a"));
    assert_true(file_has(path, bytes, PIECE, 4096));
    await_state(other, "file", "serving");
    assert_true(is_whole(other, "a"));
    OK(put_in(other, "file", "b"));
    assert_string_equal(lies_in(other, "b"), "file");
    assert_true(is_whole(cluster->store, "b"));
    OK(mc_store_unmount(cluster->store, id, 0, contract_error()));
    IS(0, EXISTS(other, "a"));
    OK(mount_file(cluster->store, path, 4096, 0, id)); /* at once, and empty */
    IS(0, EXISTS(other, "a"));
    OK(put_in(cluster->store, "file", "c"));
    assert_true(is_whole(other, "c"));
    unlink(path);
    assert_true(is_whole(other, "c"));
    free(bytes);
    OK(mc_store_close(other));
    cluster_close(cluster);
}

static void a_part_of_a_file_is_mounted_once_at_a_time(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char path[64], id[MC_SEGMENT_ID_SIZE], second[MC_SEGMENT_ID_SIZE];

    (void)state;
    make_file(path, 4 * MIB);
    OK(mount_file(cluster->store, path, 0, MIB, id));
    IS(MC_ERR_BUSY, mount_file(cluster->store, path, 0, MIB, second));
    IS(MC_ERR_BUSY, mount_file(other, path, MIB - 4096, MIB, second));
    OK(mount_file(other, path, MIB, MIB, second));
    OK(mc_store_unmount(cluster->store, id, 0, contract_error()));
    OK(mount_file(other, path, 0, MIB, id));
    unlink(path);
    OK(mc_store_close(other));
    cluster_close(cluster);
}

static void what_cannot_be_mounted_is_refused_in_words(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    char path[64], id[MC_SEGMENT_ID_SIZE] = "unchanged", text[4];
    struct mc_segment_options options = {.struct_size = sizeof(options), .size = 65535};
    char name[MC_SEGMENT_NAME_MAX + 1];

    (void)state;
    make_file(path, MIB);
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_mount(cluster->store, &options, id, contract_error()));
    options.size = UINT64_MAX;
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_mount(cluster->store, &options, id, contract_error()));
    options.size = MIB;
    options.offset = 4096; /* of no file */
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_mount(cluster->store, &options, id, contract_error()));
    options.offset = 0;
    options.flags = 1;
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_mount(cluster->store, &options, id, contract_error()));
    options.flags = 0;
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    options.name = name;
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_mount(cluster->store, &options, id, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_mount(cluster->store, NULL, id, contract_error()));
    IS(MC_ERR_SYSTEM, mount_file(cluster->store, "/nowhere/at/all", 0, MIB, id));
    IS(MC_ERR_INVALID_ARGUMENT, mount_file(cluster->store, "/dev/zero", 0, MIB, id));
    IS(MC_ERR_INVALID_ARGUMENT, mount_file(cluster->store, path, 100, 65536, id));
    IS(MC_ERR_INVALID_ARGUMENT, mount_file(cluster->store, path, 0, MIB + 1, id));
    IS(MC_ERR_INVALID_ARGUMENT, mount_file(cluster->store, path, 4096, MIB, id));
    IS(MC_ERR_INVALID_ARGUMENT, mount_file(cluster->store, path, MIB, 0, id));
    IS(MC_ERR_INVALID_ARGUMENT, mount_file(cluster->store, path, UINT64_MAX - 4095, 65536, id));
    assert_string_equal(id, "unchanged");
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_unmount(cluster->store, NULL, 0, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_unmount(cluster->store, "01234567", 0, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_store_unmount(cluster->store, "01234567-89ab-cdef-0123-456789abcdeg", 0, contract_error()));
    IS(MC_ERR_SEGMENT_NOT_FOUND,
       mc_store_unmount(cluster->store, "01234567-89ab-cdef-0123-456789abcdef", 0, contract_error()));
    IS(MC_ERR_SEGMENT_NOT_FOUND,
       mc_store_unmount(cluster->store, "00000000-0000-0000-0000-000000000000", 0, contract_error()));
    assert_true(mc_store_segments(cluster->store, text, sizeof(text)) > 4);
    assert_int_equal(text[3], '\0');
    assert_true(mc_store_segments(cluster->store, NULL, 0) > 4);
    unlink(path);
    cluster_close(cluster);
}

/* ---- All at once ---- */

struct churn {
    mc_store *store;
    atomic_bool stop;
    atomic_uint reads;
};

static void *use(void *context) {
    struct worker *worker = context;
    struct churn *churn = worker->context;
    uint8_t *bytes = malloc(PIECE);

    for (unsigned round = 0; !atomic_load(&churn->stop); round++) {
        char key[32];
        int32_t status;
        int64_t length;

        snprintf(key, sizeof(key), "churn-%zu-%u", worker->index, round % 40);
        value_make(bytes, PIECE / 4, (uint32_t)key[strlen(key) - 1], round);
        status = mc_store_upsert(churn->store, TEXT(key), bytes, PIECE / 4, NULL, NULL);
        EXPECT(worker, status == MC_OK || status == MC_ERR_NO_SPACE);
        snprintf(key, sizeof(key), "churn-%zu-%u", worker->index ^ 1u, round % 40);
        length = mc_store_get(churn->store, TEXT(key), bytes, PIECE, 0, NULL);
        EXPECT(worker,
               length == MC_ERR_NOT_FOUND || (length < 0 && mc_status_retryable((int32_t)length)) ||
                   (length == PIECE / 4 && value_is_of(bytes, (uint64_t)length, (uint32_t)key[strlen(key) - 1])));
        atomic_fetch_add(&churn->reads, 1);
    }
    free(bytes);
    return NULL;
}

static void segments_come_and_go_under_load_and_no_byte_is_wrong(void **state) {
    struct cluster *cluster = cluster_open(EXTRA);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    struct churn churns[2] = {{.store = cluster->store}, {.store = other}};
    struct worker workers[2];
    size_t rounds = contract_scaled(10);

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        workers[i] = (struct worker){.context = &churns[i], .index = i};
        worker_start(&workers[i], use);
    }
    for (size_t round = 0; round < rounds; round++) {
        char ids[2][MC_SEGMENT_ID_SIZE];
        unsigned seen = atomic_load(&churns[1].reads);

        OK(mount_named(cluster->store, "one", ids[0]));
        OK(mount_named(other, "two", ids[1]));
        while (atomic_load(&churns[1].reads) < seen + 100)
            usleep(100);
        OK(mc_store_unmount(cluster->store, ids[0], round % 2 == 0 ? 0 : 20 * MILLISECOND, contract_error()));
        OK(mc_store_unmount(other, ids[1], 0, contract_error()));
    }
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&churns[i].stop, true);
        worker_join(&workers[i]);
    }
    await_unlisted(cluster->store, "one");
    OK(mc_store_close(other));
    cluster_close(cluster);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_segment_that_was_mounted_takes_objects_at_once),
    cmocka_unit_test(what_is_unmounted_goes_with_what_it_holds_and_the_others_stay),
    cmocka_unit_test(what_drains_is_read_and_takes_nothing_new),
    cmocka_unit_test(a_segment_goes_when_its_grace_ends),
    cmocka_unit_test(a_put_in_steps_that_began_before_may_end_while_the_segment_drains),
    cmocka_unit_test(a_view_stays_readable_when_its_segment_has_gone),
    cmocka_unit_test(a_segment_of_a_file_holds_its_objects_there),
    cmocka_unit_test(a_part_of_a_file_is_mounted_once_at_a_time),
    cmocka_unit_test(what_cannot_be_mounted_is_refused_in_words),
    cmocka_unit_test(segments_come_and_go_under_load_and_no_byte_is_wrong),
};

CONTRACT_PART(store_segments, tests);
