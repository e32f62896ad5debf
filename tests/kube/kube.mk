# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The driver for Kubernetes, between stand-ins of its kubelet and API server: without the
# module, and in a booted machine with it. The manifests, against Kubernetes' schemas.

CHECKS += kube
CHECKS_IN_VM += kube-driver

KUBE := packaging/contrib/kubernetes
KUBE_VENV := $(B)/venv-kube
KUBE_SOURCES := $(wildcard $(KUBE)/actmem_dra/*.py)
KUBE_DRIVER := $(KUBE_SOURCES:$(KUBE)/%=$(B)/kube/%) \
	$(addprefix $(B)/kube/actmem_dra/,dra_pb2.py registration_pb2.py)
KUBE_NEEDS := $(B)/bin/actmem $(PRELOAD_LIBRARY) $(B)/tests/tools/holder $(KUBE_DRIVER)
KUBE_PYTHON := $(KUBE_VENV)/bin/python
CHECK_NEEDS += $(KUBE_NEEDS)

$(KUBE_VENV)/.ready: scripts/requirements-kube.txt $(KUBE)/requirements.txt
	@scripts/setup venv $(@D) $<

# As the image has it: the sources, and beside them what protoc makes of the .proto files.
$(B)/kube/%.py: $(KUBE)/%.py
	@install -D -m 644 $< $@

$(B)/kube/%_pb2.py: $(KUBE)/%.proto $(KUBE_VENV)/.ready
	@mkdir -p $(B)/kube
	$(KUBE_PYTHON) -m grpc_tools.protoc -I$(KUBE) --python_out=$(B)/kube $<

.PHONY: check-kube check-kube-driver
check-kube: $(KUBE_NEEDS)
	@failed=; for test in cluster claims; do \
		unshare --mount --pid --fork --mount-proc \
			$(KUBE_PYTHON) tests/kube/test_$$test.py $(B) || failed=1; \
	done; $(KUBE_PYTHON) tests/kube/test_manifests.py && [ -z "$$failed" ]

check-kube-driver: $(KUBE_NEEDS) $(B)/vm/init
	@tests/vm/run --kernel 6.12 --tap --host --memory 2G --numa 2 --timeout 1800 \
		--env PYTHONDONTWRITEBYTECODE=1 \
		-- unshare --mount $(KUBE_PYTHON) tests/kube/test_cluster.py $(B) \
		--and unshare --mount $(KUBE_PYTHON) tests/kube/test_claims.py $(B)
