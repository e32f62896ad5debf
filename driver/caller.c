// SPDX-License-Identifier: GPL-2.0
/*
 * On whose behalf the driver works: the task that called, or the one that
 * issued a command which a worker carries out.
 */
#include <linux/cpuset.h>
#include <linux/memcontrol.h>
#include <linux/nodemask.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/topology.h>

#include "actmem.h"

void actmem_caller_init(struct actmem_caller *caller)
{
	memset(caller, 0, sizeof(*caller));
	caller->task = current;
	caller->node = numa_node_id();
	/* The cpuset changes it under this lock. */
	task_lock(current);
	nodes_and(caller->allowed, cpuset_current_mems_allowed, node_states[N_MEMORY]);
	task_unlock(current);
}

/* Has other tasks, too, do what this task is to do and to pay for. */
void actmem_caller_share(struct actmem_caller *caller)
{
	caller->memcg = get_mem_cgroup_from_mm(NULL);
}

void actmem_caller_unshare(struct actmem_caller *caller)
{
	mem_cgroup_put(caller->memcg);
	caller->memcg = NULL;
}

/* Why to stop before the work is done, or 0; asked by whatever task does a part of it. */
int actmem_caller_stopped(const struct actmem_caller *caller)
{
	struct task_struct *task = caller->task;

	if (fatal_signal_pending(task))
		return -EINTR;
	if (!caller->req)
		return 0;
	/* It has taken the signal already when it begins with what is left to do. */
	if (READ_ONCE(task->signal->flags) & SIGNAL_GROUP_EXIT)
		return -EINTR;
	return test_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL) ? -ECANCELED : 0;
}
