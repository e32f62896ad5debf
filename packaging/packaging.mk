# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Files for udev, systemd, Prometheus, Grafana, Slurm and Kubernetes. Whether the module is loaded at boot,
# and what is reserved then, is the administrator's choice: those are examples.

UDEVDIR = $(DESTDIR)$(PREFIX)/lib/udev/rules.d
SYSUSERSDIR = $(DESTDIR)$(PREFIX)/lib/sysusers.d
UNITDIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
DOCDIR = $(DESTDIR)$(PREFIX)/share/doc/actmem
INSTALLED_FOLDERS = $(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR) $(DATADIR) $(DOCDIR) \
	$(addprefix $(MANDIR)/man,1 3 4) $(UDEVDIR) $(SYSUSERSDIR) $(UNITDIR) \
	$(DESTDIR)$(PYTHONDIR)
# Which of them it has made.
TRACES = $(DATADIR)/folders

install::
	install -D -m 644 packaging/70-actmem.rules $(UDEVDIR)/70-actmem.rules
	install -D -m 644 packaging/actmem.sysusers $(SYSUSERSDIR)/actmem.conf
	install -D -m 644 packaging/actmem.modules-load $(DOCDIR)/modules-load.d/actmem.conf
	install -D -m 644 packaging/actmem-settings.rules \
		$(DOCDIR)/udev/80-actmem-settings.rules
	install -d $(UNITDIR)
	sed 's,@BINDIR@,$(PREFIX)/bin,' packaging/actmem-exporter.service \
		>$(UNITDIR)/actmem-exporter.service
	chmod 644 $(UNITDIR)/actmem-exporter.service
	install -D -m 644 packaging/prometheus/actmem.rules.yml $(DATADIR)/prometheus/actmem.rules.yml
	install -D -m 644 packaging/grafana/actmem.json $(DATADIR)/grafana/actmem.json
	install -D -m 644 LICENSE $(DOCDIR)/LICENSE
	install -m 644 LICENSES/*.txt docs/*.md $(DOCDIR)
	install -D -m 644 -t $(DOCDIR)/abi docs/abi/*
	install -D -m 755 -t $(DATADIR)/slurm packaging/slurm/*
	install -D -m 644 -t $(DATADIR)/kubernetes packaging/kubernetes/*.yaml \
		packaging/kubernetes/Dockerfile packaging/kubernetes/requirements.txt
	install -D -m 644 -t $(DATADIR)/kubernetes/actmem_dra \
		packaging/kubernetes/actmem_dra/*.py packaging/kubernetes/actmem_dra/*.proto

uninstall::
	rm -f $(UDEVDIR)/70-actmem.rules $(SYSUSERSDIR)/actmem.conf $(UNITDIR)/actmem-exporter.service
	rm -rf $(DOCDIR) $(addprefix $(DATADIR)/,slurm kubernetes prometheus grafana)
