/* programs/bench_plan.c - reads the flags of mooncake_bench. Owns nothing; the main thread. */
#include "programs/bench_plan.h"

#include <string.h>

#include "base/config.h"

#define BATCH_MAX (1u << 20)
#define THREADS_MAX 256u
#define BUSY_POLL_MAX 1000000u
#define PRECISION_MAX 9u
#define ITEM_MAX 32u

enum {
#define FLAG(name, type, initial, works, words) BENCH_FLAG_##name,
#include "programs/bench_flags.def"
#undef FLAG
    BENCH_FLAGS
};

const struct flag bench_flags[BENCH_FLAGS] = {
#define FLAG(name, type, initial, works, words) {#name, FLAG_##type, initial, FLAG_##works, words},
#include "programs/bench_flags.def"
#undef FLAG
};
const size_t bench_flag_count = BENCH_FLAGS;

static const char *const operations[] = {[BENCH_WRITE] = "write", [BENCH_READ] = "read", [BENCH_MIX] = "mix"};
static const char *const patterns[] = {[BENCH_WALK] = "walk", [BENCH_RANDOM] = "random", [BENCH_HOT] = "hot"};
static const char *const modes[] = {[BENCH_ALONE] = "", [BENCH_TARGET] = "target", [BENCH_INITIATOR] = "initiator"};
static const char *const memories[] = {"mapped", "ordinary"};

static const struct bench_unit units[] = {
    {"GB", 1e9},      {"MB", 1e6},     {"KB", 1e3},     {"GiB", 1 << 30}, {"MiB", 1 << 20},
    {"KiB", 1 << 10}, {"Gb", 1e9 / 8}, {"Mb", 1e6 / 8}, {"Kb", 1e3 / 8},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *bench_operation_name(uint64_t operation) {
    return operations[operation];
}

const char *bench_pattern_name(enum bench_pattern pattern) {
    return patterns[pattern];
}

/* The index of a word among some; `count` if it is none of them. */
static size_t choose(const char *const *words, size_t count, const char *text) {
    size_t index = 0;

    while (index < count && strcmp(words[index], text) != 0)
        index++;
    return index;
}

static bool read_operation(const char *text, uint64_t *ret_value) {
    *ret_value = choose(operations, COUNT(operations), text);
    return *ret_value < COUNT(operations);
}

static bool read_size(const char *text, uint64_t *ret_value) {
    struct flag_value value;

    if (!flag_value_read(FLAG_SIZE, text, &value) || value.number == 0)
        return false;
    *ret_value = value.number;
    return true;
}

/* "a,b,c" by a reader of one. False: not of that form, or too many. */
static bool read_list(const char *text, bool (*read)(const char *text, uint64_t *ret_value), struct bench_list *list) {
    char item[ITEM_MAX];

    list->count = 0;
    for (;;) {
        size_t length = strcspn(text, ",");

        if (list->count == BENCH_LIST_MAX || length >= sizeof(item))
            return false;
        memcpy(item, text, length);
        item[length] = '\0';
        if (!read(item, &list->values[list->count++]))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

static bool within(const struct bench_list *list, uint64_t limit) {
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] > limit)
            return false;
    return true;
}

static uint64_t largest(const struct bench_list *list) {
    uint64_t found = 1;

    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] > found)
            found = list->values[i];
    return found;
}

/* -1, or the exit status. */
static int read_work(const struct flag_value *values, struct bench_plan *plan) {
    const char *program = plan->program;

    if (!read_list(values[BENCH_FLAG_operation].text, read_operation, &plan->operations))
        return flags_wrong(program, "operation", "a list of write, read and mix");
    if (!read_list(values[BENCH_FLAG_block_size].text, read_size, &plan->blocks))
        return flags_wrong(program, "block_size", "a list of at most 32 sizes above 0, such as 4K,64K,1M");
    if (!read_list(values[BENCH_FLAG_batch_size].text, read_size, &plan->batches) || !within(&plan->batches, BATCH_MAX))
        return flags_wrong(program, "batch_size", "a list of at most 32 numbers from 1 to 1048576");
    if (!read_list(values[BENCH_FLAG_threads].text, read_size, &plan->threads) || !within(&plan->threads, THREADS_MAX))
        return flags_wrong(program, "threads", "a list of at most 32 numbers from 1 to 256");
    plan->duration = values[BENCH_FLAG_duration].number;
    plan->buffer_size = values[BENCH_FLAG_buffer_size].number;
    plan->seed = values[BENCH_FLAG_seed].number;
    plan->verify = values[BENCH_FLAG_verify].number != 0;
    plan->json = values[BENCH_FLAG_json].number != 0;
    if (plan->duration == 0)
        return flags_wrong(program, "duration", "above 0");
    if (plan->buffer_size < 2 * BENCH_ALIGNMENT || plan->buffer_size > INT64_MAX)
        return flags_wrong(program, "buffer_size", "at least 128 bytes");
    if (plan->mode == BENCH_TARGET)
        return -1;
    if (largest(&plan->blocks) > plan->buffer_size / 2 / largest(&plan->threads) / BENCH_ALIGNMENT * BENCH_ALIGNMENT)
        return flags_wrong(program, "block_size", "above a thread's part, which is half of --buffer_size by --threads");
    return -1;
}

static int read_choices(const struct flag_value *values, struct bench_plan *plan) {
    const char *program = plan->program;
    size_t mode = choose(modes, COUNT(modes), values[BENCH_FLAG_mode].text);
    size_t pattern = choose(patterns, COUNT(patterns), values[BENCH_FLAG_pattern].text);
    size_t memory = choose(memories, COUNT(memories), values[BENCH_FLAG_memory].text);
    size_t unit = 0;

    while (unit < COUNT(units) && strcmp(units[unit].name, values[BENCH_FLAG_report_unit].text) != 0)
        unit++;
    if (mode == COUNT(modes))
        return flags_wrong(program, "mode", "target or initiator");
    if (pattern == COUNT(patterns))
        return flags_wrong(program, "pattern", "walk, random or hot");
    if (memory == COUNT(memories))
        return flags_wrong(program, "memory", "mapped or ordinary");
    if (unit == COUNT(units))
        return flags_wrong(program, "report_unit", "GB, MB, KB, GiB, MiB, KiB, Gb, Mb or Kb");
    if (values[BENCH_FLAG_report_precision].number > PRECISION_MAX)
        return flags_wrong(program, "report_precision", "at most 9");
    plan->mode = (enum bench_mode)mode;
    plan->pattern = (enum bench_pattern)pattern;
    plan->ordinary = memory == 1;
    plan->unit = &units[unit];
    plan->precision = (int)values[BENCH_FLAG_report_precision].number;
    return -1;
}

/* "tcp" and "shm" restrict the paths, other names take the best. */
static const char *protocol_of(const char *program, const char *name) {
    if (strcmp(name, "tcp") == 0 || strcmp(name, "shm") == 0)
        return name;
    if (name[0] != '\0')
        fprintf(stderr, "%s: warning: --protocol: \"%.40s\": the best path is taken\n", program, name);
    return NULL;
}

/* Takes what the environment says where a flag says nothing, as the engine does: so the report has what was measured.
 * A variable that makes no sense stops the engine, with words. */
static void settle(struct mc_engine_options *engine) {
    uint64_t checksum = 0, busy = 0;

    if (config_u64(SETTING_CHECKSUM, engine->flags & MC_ENGINE_CHECKSUM, &checksum, NULL) == MC_OK && checksum != 0)
        engine->flags |= MC_ENGINE_CHECKSUM;
    if (config_u64(SETTING_BUSY_POLL, engine->busy_poll_us, &busy, NULL) == MC_OK)
        engine->busy_poll_us = (uint32_t)busy;
}

static int read_place(const struct flags *flags, struct bench_plan *plan) {
    const struct flag_value *values = flags->values;
    const char *metadata = values[BENCH_FLAG_metadata_server].text;
    bool is_directory = strcmp(metadata, "P2PHANDSHAKE") != 0;
    struct mc_error error = MC_ERROR_INIT;
    struct address_text place;

    if (values[BENCH_FLAG_busy_poll_us].number > BUSY_POLL_MAX)
        return flags_wrong(plan->program, "busy_poll_us", "at most 1000000");
    if (address_parse(values[BENCH_FLAG_local_server_name].text, &place, &error) != MC_OK)
        return flags_wrong(plan->program, "local_server_name", error.message);
    if (strlen(place.host) + sizeof("[]:65535") > sizeof(plan->listen))
        return flags_wrong(plan->program, "local_server_name", "too long");
    plan->segment = flags_text(flags, BENCH_FLAG_segment_id);
    if (plan->mode == BENCH_ALONE && plan->segment != NULL)
        plan->mode = BENCH_INITIATOR;
    if (plan->mode == BENCH_INITIATOR && plan->segment == NULL)
        return flags_wrong(plan->program, "segment_id", "an initiator needs its target's address");
    if (plan->mode != BENCH_INITIATOR && plan->segment != NULL)
        return flags_wrong(plan->program, "segment_id", "is for an initiator");
    plan->listen_given = values[BENCH_FLAG_local_server_name].given;
    plan->engine = (struct mc_engine_options){
        .struct_size = sizeof(plan->engine),
        .flags = values[BENCH_FLAG_checksum].number != 0 ? MC_ENGINE_CHECKSUM : 0,
        .listen = plan->listen,
        .protocol = protocol_of(plan->program, values[BENCH_FLAG_protocol].text),
        .key_file = flags_text(flags, BENCH_FLAG_key_file),
        .directory = is_directory ? metadata : "p2p",
        .name = is_directory ? values[BENCH_FLAG_local_server_name].text : NULL,
        .busy_poll_us = (uint32_t)values[BENCH_FLAG_busy_poll_us].number,
    };
    settle(&plan->engine);
    address_join(place.host, place.port > 0 ? (uint16_t)place.port : 0, plan->listen);
    return -1;
}

int bench_plan_make(const struct flags *flags, const char *program, struct bench_plan *plan) {
    int status;

    memset(plan, 0, sizeof(*plan));
    plan->program = program;
    status = read_choices(flags->values, plan);
    if (status < 0)
        status = read_place(flags, plan);
    if (status < 0)
        status = read_work(flags->values, plan);
    return status;
}
