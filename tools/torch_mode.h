/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Has PyTorch pin as much as a program asks for. */
#ifndef ACTMEM_TORCH_MODE_H
#define ACTMEM_TORCH_MODE_H

/*
 * Adds to PYTORCH_ALLOC_CONF that long blocks of pinned memory are not rounded up, if the
 * environment says nothing of it and each PyTorch that @program may find knows that; and
 * tells so on stderr. Returns an enum exit_status.
 */
int torch_mode_set(const char *program);

#endif
