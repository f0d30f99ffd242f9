/* store/master/lookup.c - where objects are; and a client's sign of life, which tells what it has read by itself. */
#include "store/master/inside.h"

#include "wire/endian.h"

#define HASH_SIZE 16u

static void add_place(struct items *list, const struct claim *claim) {
    struct message_place place = {
        .segment = claim->member->id, .slot = claim->slot, .generation = claim->generation, .offset = claim->offset};

    items_add_place(list, &place);
}

static void add_location(struct master *master, const struct record *record) {
    struct message_location location = {
        .version_epoch = record->version.epoch, .version_counter = record->version.counter, .length = record->length};
    struct list *node, *after;

    items_reuse(&master->places);
    list_each (node, after, &record->replicas)
        add_place(&master->places, list_entry(node, struct claim, sibling));
    location.places = items_bytes(&master->places);
    if (master->places.full || !items_add_location(&master->locations, &location))
        master->list.full = true;
}

static void touch(struct master *master, const struct entry *entry) {
    if (entry->pending != NULL)
        record_touch(master, entry->pending);
    if (entry->current != NULL)
        record_touch(master, entry->current);
}

/* New before old (rule 8). */
static int32_t look_up_one(struct master *master, struct call *call, struct message_bytes key, uint32_t flags,
                           uint32_t *found) {
    struct message_finding finding = {.status = (uint32_t)MC_ERR_NOT_FOUND};
    struct entry *entry = index_find(master, key.data, key.length);

    items_reuse(&master->locations);
    if (entry != NULL) {
        entry_bury(master, call->now, entry);
        if (entry->pending == NULL && entry->current == NULL && !list_empty(&entry->doubts))
            return park_block(call, entry); /* rule 15 */
        if (entry->pending != NULL)
            add_location(master, entry->pending);
        if (entry->current != NULL)
            add_location(master, entry->current);
        if (entry->pending != NULL || entry->current != NULL)
            finding.status = MC_OK;
        if ((flags & LOOKUP_PROBE) == 0)
            touch(master, entry);
    }
    *found += finding.status == MC_OK;
    finding.locations = items_bytes(&master->locations);
    items_add_finding(&master->list, &finding);
    return MC_OK;
}

static void count_looked_up(struct master *master, uint32_t flags, uint32_t keys, uint32_t found) {
    struct master_total *total = &master->counts.total;
    bool probe = (flags & LOOKUP_PROBE) != 0;

    *(probe ? &total->probed : &total->looked_up) += keys;
    *(probe ? &total->present : &total->found) += found;
}

static int32_t check(struct message_bytes keys) {
    struct message_bytes key;
    int32_t more;

    while ((more = items_next(&keys, &key)) == 1)
        if (key.length < 1 || key.length > KEY_MAX)
            return MC_ERR_PROTOCOL;
    return more;
}

int32_t master_lookup(struct master *master, struct call *call) {
    struct message_located located = {0};
    struct message_lookup lookup;
    struct message_bytes key;
    uint32_t found = 0;
    int32_t status;

    if (message_unpack_lookup(call->body, call->length, &lookup) != MC_OK || check(lookup.keys) != MC_OK)
        return MC_ERR_PROTOCOL;
    status = master_enter(master, call, &lookup.client, lookup.epoch);
    if (status != MC_OK)
        return status;
    items_reuse(&master->list);
    while (items_next(&lookup.keys, &key) == 1)
        if ((status = look_up_one(master, call, key, lookup.flags, &found)) != MC_OK)
            return status;
    count_looked_up(master, lookup.flags, master->list.count, found);
    if (!master->list.full && !master_stamp(master, call, &located.stamp))
        return MC_ERR_NO_MEMORY;
    located.findings = items_bytes(&master->list);
    return master_sent(outbox_located(call->out, call->tag, &located), &master->list);
}

/* ---- Probes ---- */

#define FETCHED 16u /* hashes, before they are looked up: the index is larger than the cache */

static uint64_t high_of(struct message_bytes hashes, uint32_t index) {
    return endian_get64(hashes.data + (size_t)index * HASH_SIZE);
}

static void fetch_ahead(const struct master *master, struct message_bytes hashes, uint32_t index) {
    uint32_t count = hashes.length / HASH_SIZE;

    if (index + FETCHED < count)
        index_fetch(master, high_of(hashes, index + FETCHED));
    if (index + FETCHED / 2 < count)
        index_fetch_entry(master, high_of(hashes, index + FETCHED / 2));
}

int32_t master_probe(struct master *master, struct call *call) {
    struct message_probed probed = {0};
    struct message_probe probe;
    uint32_t count, present = 0;
    uint8_t *found;
    int32_t status;

    if (message_unpack_probe(call->body, call->length, &probe) != MC_OK || probe.hashes.length % HASH_SIZE != 0)
        return MC_ERR_PROTOCOL;
    status = master_enter(master, call, &probe.client, probe.epoch);
    if (status != MC_OK)
        return status;
    count = probe.hashes.length / HASH_SIZE;
    items_reuse(&master->list);
    found = items_add(&master->list, count);
    if (found == NULL)
        return MC_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        struct key_hash hash = {.high = high_of(probe.hashes, i),
                                .low = endian_get64(probe.hashes.data + (size_t)i * HASH_SIZE + 8)};
        struct entry *entry;

        fetch_ahead(master, probe.hashes, i);
        entry = index_find_hash(master, &hash);
        if (entry != NULL && !list_empty(&master->draining))
            entry_bury(master, call->now, entry);
        found[i] = entry != NULL && (entry->pending != NULL || entry->current != NULL);
        if (entry != NULL && !found[i] && !list_empty(&entry->doubts))
            return park_block(call, entry); /* rule 15 */
        present += found[i];
    }
    count_looked_up(master, LOOKUP_PROBE, count, present);
    if (!master_stamp(master, call, &probed.stamp))
        return MC_ERR_NO_MEMORY;
    probed.found = (struct message_bytes){.data = found, .length = count};
    return master_sent(outbox_probed(call->out, call->tag, &probed), &master->list);
}

/* ---- Signs of life ---- */

static void note_reads(struct master *master, struct message_bytes reads) {
    for (; reads.length >= HASH_SIZE; reads.data += HASH_SIZE, reads.length -= HASH_SIZE) {
        struct key_hash hash = {.high = endian_get64(reads.data), .low = endian_get64(reads.data + 8)};
        struct entry *entry = index_find_hash(master, &hash);

        if (entry != NULL)
            touch(master, entry);
    }
}

static struct message_bytes text(const char *string) {
    uint32_t length = 0;

    while (string != NULL && string[length] != '\0')
        length++;
    return (struct message_bytes){.data = (const uint8_t *)string, .length = length};
}

static void list_owners(struct master *master) {
    struct list *node, *after;

    list_each (node, after, &master->members) {
        const struct member *member = list_entry(node, struct member, all);
        struct message_owner owner = {.segment = member->id,
                                      .address = text(member->address),
                                      .name = text(member->name),
                                      .size = member->size,
                                      .free = member->free,
                                      .state = member->drains ? SEGMENT_DRAINS : SEGMENT_SERVES};

        if (member->announced)
            items_add_owner(&master->list, &owner);
    }
}

int32_t master_beat(struct master *master, struct call *call) {
    struct message_beaten beaten = {.owners_version = master->owners_version};
    struct message_beat beat;
    int32_t status;

    if (message_unpack_beat(call->body, call->length, &beat) != MC_OK || beat.reads.length % HASH_SIZE != 0)
        return MC_ERR_PROTOCOL;
    status = master_enter(master, call, &beat.client, beat.epoch);
    if (status != MC_OK)
        return status;
    note_reads(master, beat.reads);
    master->counts.total.read += beat.reads.length / HASH_SIZE;
    items_reuse(&master->list);
    if (beat.owners_version != master->owners_version || beat.epoch != master->epoch)
        list_owners(master);
    if (master->list.full || !master_stamp(master, call, &beaten.stamp))
        return MC_ERR_NO_MEMORY;
    beaten.owners = items_bytes(&master->list);
    return master_sent(outbox_beaten(call->out, call->tag, &beaten), &master->list);
}
