/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A library whose constructor asks for memory, with the loader's lock held.
 */
void in_constructor(void);		/* of the program */

__attribute__((constructor)) static void construct(void)
{
	in_constructor();
}
