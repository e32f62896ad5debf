/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Lets PyTorch pin only as much memory as a program requests. */
#ifndef ACTMEM_TORCH_MODE_H
#define ACTMEM_TORCH_MODE_H

/*
 * Adds options to PYTORCH_ALLOC_CONF so that PyTorch does not round up long blocks of pinned
 * memory, and reports it on stderr. Does nothing if the environment already has such an option, or
 * unless every PyTorch that @program may find knows them. Returns an enum exit_status.
 */
int torch_mode_set(const char *program);

#endif
