/* mooncake/mooncake.h - everything of libmooncake. */
#ifndef MOONCAKE_MOONCAKE_H
#define MOONCAKE_MOONCAKE_H

#include <mooncake/error.h>
#include <mooncake/log.h>
#include <mooncake/queue.h>
#include <mooncake/store.h>
#include <mooncake/transfer.h>
#include <mooncake/types.h>

#endif
