/* fixture.c - see contract.h. */
#include "contract.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

const char *contract_path;

bool contract_is(const char *path) {
    return strcmp(contract_path, path) == 0;
}

/* The transport of the path. */
static const char *transport(void) {
    return contract_is("process_vm") ? "shm" : contract_path;
}

size_t contract_scaled(size_t count) {
#ifdef CONTRACT_SANITIZED
    return count / 10 + 1;
#else
    return count;
#endif
}

static _Thread_local struct mc_error last_error;

struct mc_error *contract_error(void) {
    last_error = (struct mc_error){.struct_size = sizeof(last_error)};
    return &last_error;
}

void contract_expect(int32_t wanted, int64_t got, const char *call, const char *file, int line) {
    if (got == wanted)
        return;
    print_error("%s\n  is %s, not %s%s%s\n", call, mc_status_name((int32_t)got), mc_status_name(wanted),
                last_error.code == got ? ": " : "", last_error.code == got ? last_error.message : "");
    _fail(file, line);
}

/* ---- Engines ---- */

mc_engine *contract_engine(void) {
    const struct mc_engine_options options = {
        .struct_size = sizeof(options),
        .protocol = contract_is("tcp") ? "tcp" : NULL,
    };
    mc_engine *engine;

    OK(mc_engine_open(&options, &engine, contract_error()));
    return engine;
}

void contract_address(mc_engine *engine, char text[ADDRESS_TEXT]) {
    int64_t length = mc_engine_address(engine, text, ADDRESS_TEXT);

    assert_true(length > 0 && length < ADDRESS_TEXT);
}

uint64_t contract_peer(mc_engine *here, mc_engine *there) {
    char address[ADDRESS_TEXT];
    uint64_t peer;

    contract_address(there, address);
    OK(mc_peer_open(here, address, &peer, contract_error()));
    return peer;
}

/* A request that fails at the other end says by which path it went. */
static void prove_path(const struct pair *pair) {
    struct mc_request wrong = request(pair, MC_READ, 0, 0, 8);
    char words[64], text[2048];

    wrong.flags = MC_REQUEST_GUARD;
    wrong.guard_address = (uint64_t)(uintptr_t)pair->far;
    wrong.guard_value = ~*(const uint64_t *)(const void *)pair->far;
    IS(MC_ERR_GUARD_MISMATCH, mc_engine_transfer(pair->here, &wrong, 1, sizeof(wrong), 0, contract_error()));
    snprintf(words, sizeof(words), " by %s: ", transport());
    assert_non_null(strstr(last_error.message, words));
    assert_true(mc_peer_explain(pair->peer, text, sizeof(text)) > 0);
    snprintf(words, sizeof(words), "{\"transport\":\"%s\",", transport());
    assert_non_null(strstr(text, words));
    assert_non_null(strstr(strstr(text, words), "\"usable\":true"));
    assert_true(strstr(strstr(text, words), "\"usable\":true") < strchr(strstr(text, words), '}'));
    if (contract_is("process_vm"))
        assert_non_null(strstr(text, "\"how\":\"process_vm\""));
}

/* Memory of mc_memory_alloc; on the path process_vm memory that has nothing to do with it, and the id is another's. */
static uint8_t *take_memory(uint64_t *ret_id) {
    bool ordinary = contract_is("process_vm");
    void *memory;

    OK(mc_memory_alloc(ordinary ? 4096 : SPAN, NULL, ret_id, &memory, contract_error()));
    if (ordinary)
        memory = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void give_memory(uint64_t id, uint8_t *memory) {
    OK(mc_memory_free(id));
    if (contract_is("process_vm"))
        assert_int_equal(munmap(memory, SPAN), 0);
}

int contract_open(void **state) {
    struct pair *pair = calloc(1, sizeof(*pair));

    assert_non_null(pair);
    pair->here = contract_engine();
    pair->there = contract_is("self") ? pair->here : contract_engine();
    pair->peer = contract_peer(pair->here, pair->there);
    pair->near = take_memory(&pair->near_id);
    pair->far = take_memory(&pair->far_id);
    OK(mc_engine_register(pair->here, pair->near, SPAN, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(pair->there, pair->far, SPAN, NULL, RIGHTS, contract_error()));
    prove_path(pair);
    *state = pair;
    return 0;
}

void contract_close_engines(struct pair *pair) {
    if (pair->here == NULL)
        return;
    OK(mc_engine_close(pair->here));
    if (pair->there != pair->here)
        OK(mc_engine_close(pair->there));
    pair->here = pair->there = NULL;
}

int contract_close(void **state) {
    struct pair *pair = *state;

    contract_close_engines(pair);
    give_memory(pair->near_id, pair->near);
    give_memory(pair->far_id, pair->far);
    free(pair);
    return 0;
}

/* ---- Bytes ---- */

uint64_t random_next(uint64_t *seed) {
    uint64_t word = *seed += UINT64_C(0x9e3779b97f4a7c15);

    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

void fill(void *bytes, size_t length, uint64_t seed) {
    uint8_t *at = bytes;

    while (length > 0) {
        uint64_t word = random_next(&seed);
        size_t count = length < sizeof(word) ? length : sizeof(word);

        memcpy(at, &word, count);
        at += count;
        length -= count;
    }
}

uint64_t hash(const void *bytes, size_t length) {
    const uint8_t *at = bytes;
    uint64_t sum = length;

    while (length > 0) {
        uint64_t word = 0;
        size_t count = length < sizeof(word) ? length : sizeof(word);

        memcpy(&word, at, count);
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 29;
        at += count;
        length -= count;
    }
    return sum;
}

void assert_same(const void *one, const void *other, size_t length) {
    const uint8_t *a = one, *b = other;
    size_t i = 0;

    if (memcmp(one, other, length) == 0)
        return;
    while (a[i] == b[i])
        i++;
    fail_msg("%zu bytes differ, first at %zu: 0x%02x and 0x%02x", length, i, a[i], b[i]);
}

/* ---- Requests ---- */

struct mc_request request(const struct pair *pair, uint32_t opcode, size_t near_offset, size_t far_offset,
                          uint64_t length) {
    return (struct mc_request){
        .peer = pair->peer,
        .opcode = opcode,
        .local = pair->near + near_offset,
        .remote = (uint64_t)(uintptr_t)pair->far + far_offset,
        .length = length,
    };
}

uint64_t submit(const struct pair *pair, const struct mc_request *requests, size_t count, uint64_t timeout_ns) {
    const struct mc_batch_options options = {.struct_size = sizeof(options), .timeout_ns = timeout_ns};
    uint64_t batch = 0;

    OK(mc_batch_submit(pair->here, requests, count, sizeof(*requests), &options, &batch, contract_error()));
    return batch;
}

struct mc_request_status status_of(uint64_t batch, size_t index) {
    struct mc_request_status status;

    OK(mc_batch_status(batch, index, &status, 1, sizeof(status)));
    return status;
}

/* ---- The process ---- */

uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static size_t entries(const char *path) {
    DIR *directory = opendir(path);
    size_t count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

size_t descriptor_count(void) {
    return entries("/proc/self/fd");
}

size_t thread_count(void) {
    return entries("/proc/self/task");
}

size_t mapping_count(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    size_t count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        if (strstr(line, "memfd:mooncake") != NULL)
            count++;
    fclose(maps);
    return count;
}

size_t resident_bytes(void) {
    FILE *statm = fopen("/proc/self/statm", "re");
    unsigned long size, resident;

    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%lu %lu", &size, &resident), 2);
    fclose(statm);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- Threads ---- */

void worker_start(struct worker *worker, void *(*run)(void *)) {
    assert_int_equal(pthread_create(&worker->thread, NULL, run, worker), 0);
}

void worker_join(struct worker *worker) {
    pthread_join(worker->thread, NULL);
    if (worker->failed_line != 0)
        fail_msg("thread %zu failed at line %d", worker->index, worker->failed_line);
}

void contract_run(const struct pair *pair, size_t count, void *(*run)(void *), void *context) {
    struct worker workers[16];

    for (size_t i = 0; i < count; i++) {
        workers[i] = (struct worker){.pair = pair, .index = i, .context = context};
        worker_start(&workers[i], run);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < count; i++)
        if (workers[i].failed_line != 0)
            fail_msg("thread %zu failed at line %d", i, workers[i].failed_line);
}
