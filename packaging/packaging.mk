# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Files for udev, systemd, shells, Prometheus, Grafana, Slurm and Kubernetes. The files that
# load the module at boot or reserve memory are only examples: the administrator decides that.

UDEVDIR = $(DESTDIR)$(PREFIX)/lib/udev/rules.d
SYSUSERSDIR = $(DESTDIR)$(PREFIX)/lib/sysusers.d
UNITS := actmem-exporter.service actmem-pool@.service
UNITDIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
BASHDIR = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
# Debian's packages use another folder, vendor-completions.
ZSHDIR = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
DOCDIR = $(DESTDIR)$(PREFIX)/share/doc/actmem
INSTALLED_FOLDERS = $(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR) $(DATADIR) $(DOCDIR) \
	$(addprefix $(MANDIR)/man,1 3 4) $(UDEVDIR) $(SYSUSERSDIR) $(UNITDIR) \
	$(BASHDIR) $(ZSHDIR) $(DESTDIR)$(PYTHONDIR)
# Lists those of the folders that `make install` created.
TRACES = $(DATADIR)/folders

install::
	install -D -m 644 packaging/70-actmem.rules $(UDEVDIR)/70-actmem.rules
	install -D -m 644 packaging/actmem.sysusers $(SYSUSERSDIR)/actmem.conf
	install -D -m 644 packaging/actmem.modules-load $(DOCDIR)/modules-load.d/actmem.conf
	install -D -m 644 packaging/actmem-settings.rules \
		$(DOCDIR)/udev/80-actmem-settings.rules
	install -d $(UNITDIR)
	for unit in $(UNITS); do sed 's,@BINDIR@,$(PREFIX)/bin,' packaging/$$unit >$(UNITDIR)/$$unit && \
		chmod 644 $(UNITDIR)/$$unit || exit; done
	install -D -m 644 tools/completion/actmem.bash $(BASHDIR)/actmem
	ln -sf actmem $(BASHDIR)/actmem-bench
	install -D -m 644 tools/completion/actmem.zsh $(ZSHDIR)/_actmem
	install -D -m 644 packaging/prometheus/actmem.rules.yml $(DATADIR)/prometheus/actmem.rules.yml
	install -D -m 644 packaging/grafana/actmem.json $(DATADIR)/grafana/actmem.json
	install -D -m 644 LICENSE $(DOCDIR)/LICENSE
	install -m 644 LICENSES/*.txt docs/*.md $(DOCDIR)
	install -D -m 644 -t $(DOCDIR)/abi docs/abi/*
	install -D -m 755 -t $(DATADIR)/slurm packaging/slurm/*
	install -D -m 644 -t $(DATADIR)/kubernetes packaging/contrib/kubernetes/*.yaml \
		packaging/contrib/kubernetes/Dockerfile packaging/contrib/kubernetes/requirements.txt
	install -D -m 644 -t $(DATADIR)/kubernetes/actmem_dra \
		packaging/contrib/kubernetes/actmem_dra/*.py packaging/contrib/kubernetes/actmem_dra/*.proto

uninstall::
	@$(if $(DESTDIR),:,packaging/traces stop $(UNITDIR))
	rm -f $(UDEVDIR)/70-actmem.rules $(SYSUSERSDIR)/actmem.conf $(addprefix $(UNITDIR)/,$(UNITS)) \
		$(BASHDIR)/actmem $(BASHDIR)/actmem-bench $(ZSHDIR)/_actmem
	rm -rf $(DOCDIR) $(addprefix $(DATADIR)/,slurm kubernetes prometheus grafana)
