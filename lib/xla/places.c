/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Places of memory; see places.h.
 */
#include <errno.h>
#include <string.h>

#include "xla/attached.h"
#include "xla/places.h"

unsigned int places_of(const struct places *places, uint32_t device)
{
	uint16_t its = device < ACTMEM_XLA_DEVICES_MAX ? places->of_device[device] : 0;

	return its ? its - 1U : PLACES_MAX;
}

static void set_place(struct places *places, uint32_t device, unsigned int index)
{
	places->of_device[device] = (uint16_t)(index + 1);
	places->list[index].devices++;
}

static unsigned int find_node(const struct places *places, int node)
{
	unsigned int i;

	for (i = 0; i < places->count && places->list[i].node != node; i++)
		;
	return i;
}

static int open_runtime(struct actmem *am, bool spills, uint32_t device,
			struct actmem_runtime **runtime, int *node)
{
	struct actmem_runtime_info info;
	int error = attached_open_runtime(am, device, spills, runtime);

	if (error)
		return error;
	ACTMEM_INIT(&info);
	error = actmem_runtime_get_info(*runtime, &info);
	if (error)
		actmem_runtime_close(*runtime);
	*node = info.node;
	return error;
}

/*
 * Adds a device to the place of its node. The runtime of a place's first device stays open. The
 * runtimes of other devices are opened only to find their nodes.
 */
static int add_device(struct places *places, struct actmem *am, bool spills, uint32_t device)
{
	struct actmem_runtime *runtime;
	unsigned int index;
	int node, error = open_runtime(am, spills, device, &runtime, &node);

	if (error)
		return error;
	index = find_node(places, node);
	if (index == places->count) {
		places->list[places->count++] = (struct place){
			.node = node, .device = device, .runtime = runtime,
		};
	} else {
		actmem_runtime_close(runtime);
	}
	set_place(places, device, index);
	return 0;
}

int places_add(struct places *places, struct actmem *am, const struct knobs *knobs, bool spills,
	       uint32_t device, unsigned int *index)
{
	bool is_one = places->count && (knobs->placed || knobs->named);
	struct place *place;
	int error = 0;

	if (device >= ACTMEM_XLA_DEVICES_MAX)
		return -ERANGE;
	if (!places->of_device[device] && is_one)
		set_place(places, device, 0);
	else if (!places->of_device[device])
		error = add_device(places, am, spills, device);
	if (error)
		return error;
	*index = places_of(places, device);
	place = &places->list[*index];
	if (!place->runtime)
		error = attached_open_runtime(am, place->device, spills, &place->runtime);
	return error;
}

void places_join(struct places *places, uint32_t device, unsigned int index)
{
	places->list[places_of(places, device)].devices--;
	set_place(places, device, index);
}

int places_close(struct places *places)
{
	unsigned int i;
	int error = 0, failed;

	for (i = 0; i < places->count; i++) {
		if (!places->list[i].runtime)
			continue;
		failed = actmem_runtime_close(places->list[i].runtime);
		if (failed)
			error = failed;
		else
			places->list[i].runtime = NULL;
	}
	if (!error)
		memset(places, 0, sizeof(*places));
	return error;
}
