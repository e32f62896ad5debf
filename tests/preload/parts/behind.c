/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What plugin.so is linked with, and finds behind itself. */
#include "plugin.h"

int cuWho(void)
{
	return 2;
}

int who(void)
{
	return 2;
}
