/* load.c - writers and readers that check what they get. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "value.h"

#define NAME 64u

uint64_t load_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void load_begin(struct place *place) {
    atomic_store(&place->began, load_now());
}

void load_end(struct place *place) {
    uint64_t took = load_now() - atomic_load(&place->began);

    if (took > atomic_load(&place->longest))
        atomic_store(&place->longest, took);
    atomic_store(&place->began, 0);
    atomic_fetch_add(&place->calls, 1);
}

static uint64_t dice(struct load *load) {
    load->seed = value_mix(load->seed);
    return load->seed >> 16;
}

static uint64_t some_length(struct load *load) {
    uint64_t most = load->longest >> (dice(load) % 5 * 2);

    return VALUE_MIN + (most > VALUE_MIN ? dice(load) % (most - VALUE_MIN + 1) : 0);
}

static void count_failure(struct load *load, int64_t status) {
    if (status == MC_ERR_NOT_FOUND || status == MC_ERR_ALREADY_EXISTS) {
        atomic_fetch_add(&load->place->missing, 1);
        return;
    }
    if (status == MC_ERR_NO_SPACE)
        atomic_fetch_add(&load->place->full, 1);
    atomic_store(&load->place->status, status);
    atomic_fetch_add(&load->place->failed, 1);
}

/* ---- Writers ---- */

struct write {
    struct subject *subject;
    char key[NAME];
    uint64_t version;
    uint64_t length;
    void *value;
};

static void begin_write(struct load *load, struct write *write, uint32_t number) {
    write->subject = &load->table->subjects[number];
    snprintf(write->key, sizeof(write->key), "%u.%llu", number, (unsigned long long)atomic_load(&write->subject->life));
    write->version = atomic_fetch_add(&write->subject->issued, 1) + 1;
    write->length = some_length(load);
    value_make(write->value, write->length, write->key, write->version);
}

static void end_write(struct load *load, const struct write *write, int32_t status, bool upsert) {
    if (status == MC_OK) {
        atomic_store(&write->subject->settled, write->version);
        atomic_fetch_add(&load->place->good, 1);
        return;
    }
    count_failure(load, status);
    if (status != MC_ERR_NO_SPACE && (upsert || status != MC_ERR_ALREADY_EXISTS))
        atomic_fetch_add(&write->subject->life, 1);
}

static uint32_t own_subject(struct load *load) {
    uint32_t count = load->subjects / load->parts;

    return (uint32_t)(dice(load) % count) * load->parts + load->part;
}

static void write_one(struct load *load, void *value, bool upsert) {
    struct write write = {.value = value};
    const struct mc_put_options options = {.struct_size = sizeof(options), .timeout_ns = load->patience};
    size_t length;
    int32_t status;

    begin_write(load, &write, own_subject(load));
    length = strlen(write.key);
    load_begin(load->place);
    status = upsert ? mc_store_upsert(load->store, write.key, length, value, write.length, &options, NULL)
                    : mc_store_put(load->store, write.key, length, value, write.length, &options, NULL);
    load_end(load->place);
    end_write(load, &write, status, upsert);
}

static void write_batch(struct load *load, uint8_t *values) {
    const struct mc_put_options options = {
        .struct_size = sizeof(options), .flags = MC_PUT_UPSERT, .timeout_ns = load->patience};
    uint32_t first = own_subject(load) / load->parts, count = load->subjects / load->parts;
    struct write writes[BATCH];
    const void *pointers[BATCH];
    uint64_t lengths[BATCH];
    uint32_t key_lengths[BATCH];
    int32_t statuses[BATCH];
    char keys[BATCH * NAME];
    size_t used = 0;
    struct mc_keys blob = {.bytes = keys, .lengths = key_lengths, .count = count < BATCH ? count : BATCH};

    for (uint32_t i = 0; i < blob.count; i++) {
        writes[i].value = values + i * load->longest;
        begin_write(load, &writes[i], (first + i) % count * load->parts + load->part);
        key_lengths[i] = (uint32_t)strlen(writes[i].key);
        memcpy(keys + used, writes[i].key, key_lengths[i]);
        used += key_lengths[i];
        pointers[i] = writes[i].value;
        lengths[i] = writes[i].length;
        statuses[i] = MC_ERR_PENDING;
    }
    load_begin(load->place);
    (void)mc_store_put_batch(load->store, &blob, pointers, lengths, &options, statuses, NULL);
    load_end(load->place);
    for (uint32_t i = 0; i < blob.count; i++)
        end_write(load, &writes[i], statuses[i], true);
}

static void remove_one(struct load *load) {
    uint32_t number = own_subject(load);
    struct subject *subject = &load->table->subjects[number];
    char key[NAME];
    int32_t status;

    snprintf(key, sizeof(key), "%u.%llu", number, (unsigned long long)atomic_load(&subject->life));
    load_begin(load->place);
    status = mc_store_remove(load->store, key, strlen(key), load->patience, NULL);
    load_end(load->place);
    if (status == MC_OK) {
        atomic_store(&subject->settled, atomic_fetch_add(&subject->issued, 1) + 1);
        atomic_fetch_add(&load->place->good, 1);
    } else {
        count_failure(load, status);
        if (status != MC_ERR_NOT_FOUND)
            atomic_fetch_add(&subject->life, 1);
    }
}

void load_write(struct load *load) {
    uint8_t *values = malloc(BATCH * load->longest);

    if (values == NULL)
        abort();
    for (uint32_t i = load->part; i < load->subjects; i += load->parts) /* a former writer may have died in a call */
        atomic_fetch_add(&load->table->subjects[i].life, 1);
    while (!atomic_load(&load->stop)) {
        uint64_t roll = dice(load) % 100;

        if (roll < 15)
            remove_one(load);
        else if (roll < 30)
            write_batch(load, values);
        else
            write_one(load, values, roll < 70);
    }
    free(values);
}

void load_fresh(struct load *load) {
    const struct mc_put_options options = {.struct_size = sizeof(options), .timeout_ns = load->patience};
    uint8_t *value = malloc(load->longest);
    uint64_t number = 0;

    if (value == NULL)
        abort();
    while (!atomic_load(&load->stop)) {
        char key[NAME];
        int32_t status;

        snprintf(key, sizeof(key), "fresh-%llu-%llu", (unsigned long long)load->seed, (unsigned long long)++number);
        value_make(value, load->longest, key, number);
        load_begin(load->place);
        status = mc_store_put(load->store, key, strlen(key), value, load->longest, &options, NULL);
        load_end(load->place);
        if (status == MC_OK)
            atomic_fetch_add(&load->place->good, 1);
        else
            count_failure(load, status);
    }
    free(value);
}

/* ---- Readers ---- */

struct read {
    struct subject *subject;
    char key[NAME];
    uint64_t settled;
};

static void begin_read(struct load *load, struct read *read) {
    uint32_t number = (uint32_t)(dice(load) % load->subjects);
    uint64_t life;

    read->subject = &load->table->subjects[number];
    do { /* what is settled under this name, not under the next */
        life = atomic_load(&read->subject->life);
        read->settled = atomic_load(&read->subject->settled);
    } while (life != atomic_load(&read->subject->life));
    snprintf(read->key, sizeof(read->key), "%u.%llu", number, (unsigned long long)life);
}

static void end_read(struct load *load, const struct read *read, int64_t found, const void *bytes) {
    int64_t version;

    if (found < 0) {
        count_failure(load, found);
        return;
    }
    version = value_version(bytes, (uint64_t)found, read->key);
    if (version < 0 || (uint64_t)version > atomic_load(&read->subject->issued)) {
        const uint64_t *words = bytes;

        atomic_fetch_add(&load->place->wrong, 1);
        fprintf(stderr, "wrong bytes under %s: length %lld, version %lld", read->key, (long long)found,
                (long long)version);
        for (int i = 0; i < 4 && found >= (int64_t)VALUE_MIN; i++)
            fprintf(stderr, " %016llx", (unsigned long long)words[i]);
        fputc('\n', stderr);
    } else if ((uint64_t)version < read->settled) {
        atomic_fetch_add(&load->place->stale, 1);
        fprintf(stderr, "%llu: version %lld of %s, when it had been %llu\n", (unsigned long long)load_now(),
                (long long)version, read->key, (unsigned long long)read->settled);
    } else {
        atomic_fetch_add(&load->place->good, 1);
    }
}

static void read_one(struct load *load, void *buffer) {
    struct read read;
    int64_t found;

    begin_read(load, &read);
    load_begin(load->place);
    found = mc_store_get(load->store, read.key, strlen(read.key), buffer, load->longest, load->patience, NULL);
    load_end(load->place);
    end_read(load, &read, found, buffer);
}

static void view_one(struct load *load) {
    struct timespec pause = {.tv_nsec = (long)(dice(load) % 3 * 1000000)};
    const void *data = NULL;
    uint64_t view = 0;
    struct read read;
    int64_t found;

    begin_read(load, &read);
    load_begin(load->place);
    found = mc_store_view(load->store, read.key, strlen(read.key), load->patience, &view, &data, NULL);
    load_end(load->place);
    end_read(load, &read, found, data);
    if (found < 0)
        return;
    nanosleep(&pause, NULL);
    if (value_version(data, (uint64_t)found, read.key) < 0) {
        fprintf(stderr, "a view of %s has changed\n", read.key);
        atomic_fetch_add(&load->place->wrong, 1);
    }
    (void)mc_view_release(view);
}

struct reads {
    struct read reads[BATCH];
    char keys[BATCH * NAME];
    uint32_t lengths[BATCH];
    struct mc_keys blob;
};

static void begin_reads(struct load *load, struct reads *reads) {
    size_t used = 0;

    for (size_t i = 0; i < BATCH; i++) {
        begin_read(load, &reads->reads[i]);
        reads->lengths[i] = (uint32_t)strlen(reads->reads[i].key);
        memcpy(reads->keys + used, reads->reads[i].key, reads->lengths[i]);
        used += reads->lengths[i];
    }
    reads->blob = (struct mc_keys){.bytes = reads->keys, .lengths = reads->lengths, .count = BATCH};
}

static void read_batch(struct load *load, uint8_t *buffer) {
    uint64_t capacities[BATCH];
    void *buffers[BATCH];
    int64_t found[BATCH];
    struct reads reads;

    begin_reads(load, &reads);
    for (size_t i = 0; i < BATCH; i++) {
        buffers[i] = buffer + i * load->longest;
        capacities[i] = load->longest;
        found[i] = MC_ERR_PENDING;
    }
    load_begin(load->place);
    (void)mc_store_get_batch(load->store, &reads.blob, buffers, capacities, load->patience, found, NULL);
    load_end(load->place);
    for (size_t i = 0; i < BATCH; i++)
        end_read(load, &reads.reads[i], found[i], buffers[i]);
}

static void view_batch(struct load *load) {
    const void *data[BATCH] = {NULL};
    uint64_t views[BATCH] = {0};
    int64_t found[BATCH];
    struct reads reads;

    begin_reads(load, &reads);
    for (size_t i = 0; i < BATCH; i++)
        found[i] = MC_ERR_PENDING;
    load_begin(load->place);
    (void)mc_store_view_batch(load->store, &reads.blob, load->patience, views, data, found, NULL);
    load_end(load->place);
    for (size_t i = 0; i < BATCH; i++) {
        end_read(load, &reads.reads[i], found[i], data[i]);
        if (found[i] >= 0)
            (void)mc_view_release(views[i]);
    }
}

static void probe_one(struct load *load) {
    struct read read;
    int64_t found;

    begin_read(load, &read);
    load_begin(load->place);
    found = dice(load) % 2 != 0 ? mc_store_exists(load->store, read.key, strlen(read.key), load->patience, NULL)
                                : mc_store_size(load->store, read.key, strlen(read.key), load->patience, NULL);
    load_end(load->place);
    if (found < 0)
        count_failure(load, found);
}

void load_read(struct load *load) {
    uint8_t *buffer = malloc(BATCH * load->longest);

    if (buffer == NULL)
        abort();
    while (!atomic_load(&load->stop)) {
        uint64_t roll = dice(load) % 100;

        if (roll < 40)
            read_one(load, buffer);
        else if (roll < 60)
            read_batch(load, buffer);
        else if (roll < 80)
            view_one(load);
        else if (roll < 90)
            view_batch(load);
        else
            probe_one(load);
    }
    free(buffer);
}
