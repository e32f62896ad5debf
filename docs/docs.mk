# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Man pages, by scdoc. Without scdoc everything but them is built.

MAN_PAGES := $(patsubst docs/%.scd,$(B)/man/%,$(wildcard docs/*.scd))

ifneq ($(shell command -v scdoc),)
ALL += $(MAN_PAGES)
INSTALLED_MAN_PAGES := $(MAN_PAGES)
else
LEFT_OUT += 'the man pages: scdoc is not installed'
endif

$(B)/man/%: docs/%.scd
	@mkdir -p $(@D)
	scdoc <$< >$@

install:: $(INSTALLED_MAN_PAGES)
	set -e; for page in $^; do \
		install -D -m 644 $$page $(MANDIR)/man$${page##*.}/$${page##*/}; \
	done

uninstall::
	rm -f $(foreach page,$(notdir $(MAN_PAGES)),$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(page))
