/* store/master/list.c - keys, page by page, in the order of their hashes.
 *
 * A cursor is the first hash that was not looked at. Buckets are taken whole and are ranges of hashes, so a cursor
 * stays right when tables grow between two pages.
 */
#include "store/master/describe.h"
#include "store/master/inside.h"

#include "wire/frame.h"

#define LIMIT_MAX 65536u
#define BUCKETS_PER_PAGE 65536u
#define PAGE_BYTES (FRAME_MESSAGE_MAX / 2)

static void add_chain(struct items *keys, const struct table_node *node, uint64_t cursor) {
    for (; node != NULL; node = node->next) {
        const struct entry *entry = table_entry(node, struct entry, node);

        if (node->hash >= cursor && (entry->current != NULL || entry->pending != NULL))
            items_append(keys, entry->key, entry->key_length);
    }
}

uint64_t master_list_page(const struct master *master, uint64_t cursor, uint32_t limit, struct items *keys) {
    uint32_t buckets = BUCKETS_PER_PAGE;

    if (limit > LIMIT_MAX)
        limit = LIMIT_MAX;

    do {
        const struct table *table = &master->shards[cursor >> (64 - SHARD_BITS)];
        uint64_t end;

        add_chain(keys, table_chain_range(table, cursor, &end), cursor);
        cursor = end;
    } while (cursor != 0 && --buckets > 0 && keys->count < limit && keys->length < PAGE_BYTES && !keys->full);
    return cursor;
}

int32_t master_list(struct master *master, struct call *call) {
    struct message_listed listed = {0};
    struct message_list list;
    int32_t status;

    if (message_unpack_list(call->body, call->length, &list) != MC_OK)
        return MC_ERR_PROTOCOL;
    status = master_enter(master, call, &list.client, list.epoch);
    if (status != MC_OK)
        return status;
    items_reuse(&master->list);
    listed.cursor = master_list_page(master, list.cursor, list.limit, &master->list);
    if (master->list.full || !master_stamp(master, call, &listed.stamp))
        return MC_ERR_NO_MEMORY;
    listed.keys = items_bytes(&master->list);
    return master_sent(outbox_listed(call->out, call->tag, &listed), &master->list);
}
