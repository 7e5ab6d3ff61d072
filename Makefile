# make demo: set up, write a checkpoint, export and verify it.   make test: set up, run all tests.   make help: the rest.
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install -q --no-compile --disable-pip-version-check
READY  := $(VENV)/.ready
FORMATS := $(VENV)/.formats
DEMO   ?= work_dirs/demo
TORCH  ?= 2.13.0
# The environment whose mmcv has compiled ops, and the wheel that is built for it once.
COMPILED := $(VENV)-compiled
WHEELS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mmexport/torch-$(TORCH)
# Of more processes than four the memory runs out before the time does.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 4 ? 4 : n < 2 ? 2 : n)))
# A plain `torch` brings gigabytes of CUDA packages on Linux; this index has the CPU builds.
CPU    ?= https://download.pytorch.org/whl/cpu
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && break; done)

# pip leaves byte code to the first process (--no-compile); with this set, every process would compile torch and mmdet anew, some 10 s each.
unexport PYTHONDONTWRITEBYTECODE

# Not the slow ones, and not those that export and check whole models: daily work in under two minutes on two cores.
FAST := tests/checker tests/cli tests/branches/test_tables.py tests/branches/test_recorder.py tests/model tests/utils tests/compat \
	tests/inputs tests/patching tests/ops

.PHONY: help setup formats demo test test-fast mmcv test-compiled docs lint mutation matrix picture verify-configs cpp clean

help:
	@sed -n 's/^# make/make/p' Makefile
	@echo "make test-fast: tests for daily work.   make docs: the pages of docs/ as build/site."
	@echo "make lint: ruff, mypy, import contracts.   make verify-configs: export and verify every config, full size (hours on two cores)."
	@echo "make matrix: export and test with other versions of torch and numpy (hours)."
	@echo "make picture: draw docs/images/parity.png, which the README shows."
	@echo "make mmcv: build mmcv with compiled ops for the environment $(COMPILED)."
	@echo "make test-compiled: tests against those ops, and every detector judged by them (some 45 minutes)."
	@echo "make mutation: change what judges files, one place at a time, and see whether a test notices."
	@echo "make cpp: build examples/cpp on LibTorch (cmake, a compiler) and run it on Mask2Former-R50 and SegFormer-B0."

setup: $(READY)

$(READY): requirements/lock.txt setup.py pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 was not found; name one: make PYTHON=/path/to/python3.11"; exit 3; }
	$(PYTHON) -m venv --clear $(VENV)
	@# Both at once: torch is most of the bytes. A torch with its own dependencies waits, for some of them are in the lock too.
	$(PIP) --no-deps -r requirements/lock.txt & lock=$$!; \
	$(PIP) --no-deps --retries 1 --index-url $(CPU) torch==$(TORCH) || { \
		echo "no CPU build of torch $(TORCH) at $(CPU); taking the one of the default index"; \
		wait $$lock && $(PIP) torch==$(TORCH); } && wait $$lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)
	$(PY) tools/make_checkpoint.py configs/mask2former_r50.py $(DEMO)/mask2former_r50.pth
	$(PY) tools/export.py configs/mask2former_r50.py $(DEMO)/mask2former_r50.pth --backend torchscript \
		--work-dir $(DEMO)
	@ls -l $(DEMO)/torchscript/*

$(FORMATS): requirements/formats.txt requirements/sweep.txt $(READY)
	$(PIP) --no-deps -r requirements/formats.txt -r requirements/sweep.txt
	@touch $@

# The runtimes of the formats beside TorchScript, and Ray for the sweep.
formats: $(FORMATS)

test: $(FORMATS)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist loadgroup $(TESTS)

test-fast: $(FORMATS)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 -q -m 'not slow' $(FAST)

# Its ops run on the CPU; building them takes some 9 minutes on two cores, once for each torch and Python.
$(COMPILED)/.mmcv: requirements/lock.txt requirements/formats.txt
	$(MAKE) formats VENV=$(COMPILED)
	$(COMPILED)/bin/python -m pip install -q --disable-pip-version-check ninja
	for_python=$(WHEELS)/$$($(COMPILED)/bin/python -c 'import sys; print(sys.implementation.cache_tag)'); \
	ls $$for_python/mmcv-2.1.0-*.whl 2>/dev/null || \
		PATH=$(abspath $(COMPILED))/bin:$$PATH MMCV_WITH_OPS=1 MAX_JOBS=2 $(COMPILED)/bin/python -m pip wheel -q --no-deps \
			--no-build-isolation --no-binary mmcv --no-cache-dir -w $$for_python mmcv==2.1.0 && \
	$(COMPILED)/bin/python -m pip uninstall -q -y mmcv-lite && \
	$(COMPILED)/bin/python -m pip install -q --no-deps --force-reinstall $$for_python/mmcv-2.1.0-*.whl
	@touch $@

mmcv: $(COMPILED)/.mmcv

# Goes on where it was interrupted, as far as detectors are concerned.
test-compiled: $(COMPILED)/.mmcv
	OMP_NUM_THREADS=1 $(COMPILED)/bin/python -m pytest -n 2 -m compiled_mmcv
	$(COMPILED)/bin/python benchmarks/detectors.py --formats torchscript --out benchmarks/results/detectors_compiled.json

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

# The pages of docs/ as build/site; a broken link or anchor is an error.
docs: $(READY) requirements/docs.txt
	$(PIP) --no-deps -r requirements/docs.txt
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build -q --strict

# Not in CI, for it takes long. Goes on where it was interrupted; `mutmut results` in mutants/ lists what survived.
mutation: $(FORMATS)
	$(PIP) mutmut==3.8.1
	OMP_NUM_THREADS=1 $(PY) -m mutmut run --max-children 2
	$(PY) benchmarks/mutation.py --out benchmarks/results/mutation.json

# Environments of other versions, one at a time, about 6 GB each; goes on where it was interrupted.
matrix: $(READY)
	$(PY) benchmarks/matrix.py --out benchmarks/results/matrix.json
	$(PY) benchmarks/matrix_table.py

picture: $(READY)
	$(PY) tools/make_checkpoint.py configs/mask2former_r50.py work_dirs/picture/weights.pth
	$(PY) tools/export.py configs/mask2former_r50.py work_dirs/picture/weights.pth --work-dir work_dirs/picture
	$(PY) benchmarks/picture.py work_dirs/picture/torchscript docs/images/parity.png

verify-configs: $(READY)
	$(PY) benchmarks/verify_configs.py --out benchmarks/results/verify_configs.json
	$(PY) benchmarks/verify_configs.py --reverse --out benchmarks/results/verify_configs_reverse.json

cpp: $(READY)
	cmake -S examples/cpp -B build/cpp -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_PREFIX_PATH=$$($(PY) -c 'import torch; print(torch.utils.cmake_prefix_path)')
	cmake --build build/cpp
	for name in mask2former_r50 segformer_b0; do \
		$(PY) tools/make_checkpoint.py configs/$$name.py work_dirs/cpp/$$name.pth && \
		$(PY) tools/export.py configs/$$name.py work_dirs/cpp/$$name.pth --shape 512 512 --outputs raw --quiet \
			--work-dir work_dirs/cpp/$$name && \
		$(PY) examples/cpp/samples.py work_dirs/cpp/$$name/torchscript && \
		build/cpp/run work_dirs/cpp/$$name/torchscript cpu || exit 1; done

clean:
	rm -rf $(VENV) $(COMPILED) work_dirs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
