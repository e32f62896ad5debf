/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A stand-in for libnvidia-ml.so.1, without which XLA finds no devices: it can be opened,
 * and knows the driver's version.
 */
#pragma GCC visibility push(default)

#include <stdio.h>

#define NVML_SUCCESS		0

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *version, unsigned int length);
const char *nvmlErrorString(int result);

int nvmlInit_v2(void)
{
	return NVML_SUCCESS;
}

int nvmlShutdown(void)
{
	return NVML_SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	snprintf(version, length, "580.0");
	return NVML_SUCCESS;
}

const char *nvmlErrorString(int result)
{
	return result ? "an error" : "success";
}
