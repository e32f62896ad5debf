// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Prints the library's error message with the options of `actmem replay`. */
#include <err.h>
#include "actmem.h"
#include "replay.h"

void replay_tell_error(const char *where)
{
	warnx("%s%s%s", where ? where : "", where ? ": " : "",
	      actmem_error_in(ACTMEM_NAMES_REPLAY));
}
