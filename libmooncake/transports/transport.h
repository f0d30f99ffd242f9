/* transports/transport.h - the one table by which the engine uses every transport.
 *
 * A transport has one instance per engine and one link per peer that it can reach. A request is cut into slices; each
 * slice is submitted to one link and ends exactly once, by `done`; from then on nothing touches its local memory. Two
 * kinds: those that move the bytes in the calling thread have `step` and do a piece at each call; the others go on by
 * themselves after `submit`, over lanes that a waiting caller may drive.
 */
#ifndef MC_TRANSPORTS_TRANSPORT_H
#define MC_TRANSPORTS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/transfer.h>

#include "base/ref.h"
#include "base/writer.h"
#include "net/channel.h"
#include "net/server.h"

/* Bytes copied between two looks at cancel and deadline. */
#define TRANSPORT_PIECE (1u << 20)

#define TRANSPORT_CANCEL_MAX 1024u
#define TRANSPORT_GROUP 128u
#define TRANSPORT_REASON_MAX 160

struct transport;
struct transport_link;

/* A registered region as transports see it; owned by the registry, alive between publish and withdraw. */
struct region {
    uint64_t base;
    uint64_t length;
    uint32_t access;        /* MC_REMOTE_* */
    int memory_fd;          /* of mc_memory_alloc's memory, else -1 */
    uint64_t memory_offset; /* of `base` in it */
    uint64_t memory_size;
    uint32_t page_slot; /* shm's own: its place in the region page */
};

/* What the engine offers to its transports. */
struct transport_host {
    struct loop *loop;
    struct server *server;
    const struct identity *self;
    uint32_t slice;           /* bytes a frame may carry */
    uint64_t connect_timeout; /* ns that connecting to a peer may take */
    bool checksum;            /* over payloads that cross a network */
    bool rings;               /* calls may go through them */
    void *context;
    /* Finds [address, address + length) in one registered region with all rights in `access`, and keeps it registered
     * until unpin. MC_ERR_NOT_REGISTERED, MC_ERR_ACCESS_DENIED. Any thread. */
    int32_t (*pin)(void *context, uint64_t address, uint64_t length, uint32_t access, void **ret_pin);
    void (*unpin)(void *context, void *pin);
};

/* One part of a request. The engine fills the first group and keeps it in place until done. */
struct slice {
    uint8_t *local;
    uint64_t remote;
    uint64_t length;
    uint64_t guard_address;
    uint64_t guard_value;
    uint32_t opcode;
    bool guarded;
    bool summed;        /* `checksum` is wanted: the CRC32C of the bytes moved by step */
    bool indeterminate; /* set before done: a WRITE that may have been applied in part */
    void *owner;
    void (*done)(struct slice *slice, int32_t status);

    struct list node;         /* in the list given to submit */
    uint64_t moved;           /* step: bytes so far */
    uint32_t checksum;        /* step: of the bytes so far, if summed */
    struct lane *lane;        /* set by submit: who carries it */
    struct lane_request wire; /* for the lane */
};

struct transport_ops {
    const char *name;
    uint32_t cost; /* cheaper ones are preferred */
    /* Why this process can't use it, in words; NULL if it can. */
    const char *(*unavailable)(void);
    bool sliced; /* slices are at most host->slice bytes; else whole requests */

    /* Begins to work for an engine: registers services, opens listeners. MC_ERR_NOT_SUPPORTED with a reason if it can't
     * here. */
    int32_t (*open)(const struct transport_host *host, struct transport **ret_transport,
                    char reason[TRANSPORT_REASON_MAX]);
    /* On the loop's thread, before the server is closed; and then, after all links are gone, from the closing thread.
     * NULL: nothing to do. */
    void (*stop_serving)(struct transport *transport);
    void (*close)(struct transport *transport);

    /* Lets peers reach the region; a region that this transport can't publish is left to others. NULL: nothing to do.
     */
    void (*publish)(struct transport *transport, struct region *region);
    /* After MC_OK no peer touches it by this transport. MC_ERR_BUSY if that isn't so by `deadline`: then it is
     * published as before. */
    int32_t (*withdraw)(struct transport *transport, struct region *region, uint64_t deadline);
    /* Is a peer's guarded transfer under way that may have found this 8-byte word of the engine's own memory equal
     * before now? Any thread. NULL: never. */
    bool (*in_flight)(struct transport *transport, const void *guard);

    /* Makes a link to the peer at the channel's other end. MC_ERR_NOT_SUPPORTED with a reason if there is no such path.
     */
    int32_t (*connect)(struct transport *transport, struct channel *channel, struct transport_link **ret_link,
                       char reason[TRANSPORT_REASON_MAX]);
    void (*disconnect)(struct transport_link *link);
    /* Has the channel's calls take a better way than its lanes, if the transport has one to that peer; waits for the peer
     * a moment. `connect` does it, too: this is for channels without links. NULL: there is none. */
    void (*speed_up)(struct transport *transport, struct channel *channel);
    /* Why the link has stopped working since; NULL while it works, as far as is known. It may still be tried, where no
     * other is left. The function may be NULL: never by itself. */
    const char *(*trouble)(struct transport_link *link);

    /* Writes what the link knows of the peer's regions, as elements of the JSON array "regions" of mc_peer_explain, with
     * the comma before each but the first. NULL: nothing. */
    void (*explain)(struct transport_link *link, struct writer *writer);

    /* Can the link carry the slice? NULL: any. */
    bool (*reach)(struct transport_link *link, const struct slice *slice);

    /* A pointer through which the peer's registered memory at [address, address + length) is read and (with the right)
     * written like the process's own, until the hold is dropped: also after the link, the peer and its engine are gone.
     * May wait for the peer a moment, so not on the loop's thread. MC_ERR_NOT_SUPPORTED where there is none,
     * MC_ERR_NO_MEMORY. NULL: never. */
    int32_t (*map)(struct transport_link *link, uint64_t address, uint64_t length, uint32_t access, void **ret_memory,
                   struct ref **ret_hold);

    /* step is NULL: takes all slices of the list, which is left empty. Some may be done before the return. `attended`
     * as for lane_submit. */
    void (*submit)(struct transport_link *link, struct list *slices, bool attended);
    /* Moves the next piece. MC_ERR_PENDING while there is more, else the slice's status (done is the caller's to call).
     */
    int32_t (*step)(struct transport_link *link, struct slice *slice);
    /* As step for each of several slices (at most TRANSPORT_GROUP, that have not begun, at most TRANSPORT_PIECE bytes
     * in all), in fewer system calls. NULL: step is as good. */
    void (*step_group)(struct transport_link *link, struct slice *const *slices, size_t count, int32_t *ret_statuses);
    /* step is NULL: ends those of the slices, at most TRANSPORT_CANCEL_MAX, that haven't ended with `status`: on return
     * done was called for each. */
    void (*cancel)(struct slice *const *slices, size_t count, int32_t status);
};

extern const struct transport_ops transport_self;
extern const struct transport_ops transport_shm;
extern const struct transport_ops transport_tcp;

#endif
