# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The libraries of both commands, actmem and actmem-bench. pkg-config gives their flags, unless
# TOOLS_CFLAGS and TOOLS_LIBS are set. bench/bench.mk, which make reads first, also includes
# this file.

TOOLS_NEEDS := smartcols jansson

ifneq ($(origin TOOLS_LIBS),undefined)
TOOLS_FOUND := found
else ifneq ($(shell pkg-config --exists $(TOOLS_NEEDS) 2>/dev/null && echo found),)
TOOLS_FOUND := found
TOOLS_CFLAGS = $(shell pkg-config --cflags $(TOOLS_NEEDS))
TOOLS_LIBS = $(shell pkg-config --libs $(TOOLS_NEEDS))
endif
