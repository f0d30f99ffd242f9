/* api/store_checks.h - checks of arguments that several calls on objects have; each says in words what is wrong. */
#ifndef MC_API_STORE_CHECKS_H
#define MC_API_STORE_CHECKS_H

#include <mooncake/store.h>

#include "store/store.h"

/* Completes the options in *taken. */
int32_t check_put_options(struct mc_put_options *taken, const struct mc_put_options *given, struct mc_error *error);

/* The columns of keys, and how many; not what they are, for a bad one fails by itself. */
int32_t check_keys(const struct mc_keys *keys, struct mc_error *error);

/* The columns of pieces of `count` objects, and how many they are. */
int32_t check_pieces(const struct mc_piece *pieces, const uint32_t *counts, size_t count, struct mc_error *error);

/* When a call ends that may take `timeout`, or 0: what the store says. */
uint64_t call_deadline(const struct store *store, uint64_t timeout);

#endif
