// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Tells a failure of the library by the options of `actmem replay`. */
#include <err.h>
#include "actmem.h"
#include "replay.h"

void replay_tell_error(const char *where)
{
	warnx("%s%s%s", where ? where : "", where ? ": " : "",
	      actmem_error_in(ACTMEM_NAMES_REPLAY));
}
