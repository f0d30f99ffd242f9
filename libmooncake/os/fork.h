/* os/fork.h - what a fork must not tear: locks that are held over it, descriptors that the child closes. */
#ifndef MC_OS_FORK_H
#define MC_OS_FORK_H

#include <pthread.h>

/* From now on fork waits for `lock` and both processes have it free. For the few process-wide leaf locks, never
 * destroyed. */
void fork_hold(pthread_mutex_t *lock);

/* `fd` is closed in children forked from now on; and no longer. -1 is fine. */
void fork_close_in_child(int fd);
void fork_forget(int fd);

/* fork_forget and close as one step, so that a racing fork sees both or neither. Keeps errno. -1 is fine. */
void fork_close(int fd);

/* No fork in between: for making a descriptor or a mapping and marking it as one step. Not nested; nothing that waits,
 * and fork_close_in_child_paused in place of fork_close_in_child. */
void fork_pause(void);
void fork_resume(void);
void fork_close_in_child_paused(int fd);

#endif
