/* meter.h - a TCP proxy in threads that counts the requests which pass, by type, and holds replies back on demand. */
#ifndef MC_TESTS_METER_H
#define MC_TESTS_METER_H

#include <stdint.h>

/* Types of frames (docs/protocol.md). */
#define METER_READ 1u
#define METER_WRITE 2u
#define METER_ATTACH 22u
#define METER_RESERVE 24u
#define METER_RELEASE 26u
#define METER_PUBLISH 28u
#define METER_LOOKUP 30u
#define METER_REMOVE 32u
#define METER_LIST 34u
#define METER_BEAT 36u
#define METER_TYPES 64u

struct meter;

/* Listens at `host` on a free port, which meter_port tells. Clients are served once meter_serve has said where. */
struct meter *meter_open(const char *host);
uint16_t meter_port(const struct meter *meter);
const char *meter_address(const struct meter *meter);
void meter_serve(struct meter *meter, const char *upstream_host, uint16_t upstream_port);
struct meter *meter_close(struct meter *meter);

/* Requests of that type so far. */
uint64_t meter_count(const struct meter *meter, unsigned type);
/* Replies stay here until they are let go. */
void meter_hold(struct meter *meter);
void meter_let_go(struct meter *meter);

#endif
