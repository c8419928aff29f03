# SPDX-License-Identifier: BSD-2-Clause
# Fuzzing and sanitizers, in a build directory of their own. Included by the Makefile.
# Both would share jobs with make, and cannot with those that make gives them.
NINJA := env -u MAKEFLAGS ninja --quiet
MESON_TEST := env -u MAKEFLAGS meson test --print-errorlogs
FUZZ_SECONDS ?= 20
NIGHTLY_SCHEDULES ?= 10000
NIGHTLY_SECONDS ?= 1800
FUZZ_TARGETS := packet capfile flow device compound rpcrdma
# C tests with threads, for TSan: a folder of tests/ and a name in it.
THREADED := memory_hooks memory_pins memory_pool_threads port_threads port_full port_hostile port_paging port_windows \
  rpc_endpoint load_load load_load_move load_load_restore \
  nfs_accelerator_read nfs_accelerator_threads nfs_accelerator_write nfs_slots_threads nfs_workers

build-fuzz/build.ninja:
	CC=clang meson setup build-fuzz -Dwerror=true -Dpython=false -Dfuzzers=true -Dnative_tests=true \
	  -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false >/dev/null

fuzz: setup .venv/tools build-fuzz/build.ninja ## fuzz all that takes bytes from strangers (FUZZ_SECONDS=20 each)
	$(NINJA) -C build-fuzz
	@printf '%s\n' $(FUZZ_TARGETS) | xargs -P $$(nproc) -I {} $(MAKE) --no-print-directory fuzz-{}

fuzz-%:
	@mkdir -p build-fuzz/found/$*; echo "fuzzing $* for $(FUZZ_SECONDS) s"
	@build-fuzz/fuzz/fuzz_$* -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -print_final_stats=1 \
	    -artifact_prefix=build-fuzz/$*- build-fuzz/found/$* fuzz/corpus/$* 2>build-fuzz/$*.log \
	    || { tail -n 40 build-fuzz/$*.log; exit 1; }
	@grep -E "^Done|number_of_executed" build-fuzz/$*.log | sed 's/^/$*: /'

# Other examples than CI's, which are always the same; and all tests that do more than CI has time for (tests/scale.py).
nightly: setup .venv/tools ## a night's worth of schedules and fuzzing (NIGHTLY_SCHEDULES=10000, NIGHTLY_SECONDS=1800 each)
	env -u CI LIVEDMA_SCHEDULES=$(NIGHTLY_SCHEDULES) LIVEDMA_STORM_SECONDS=60 \
	  pytest $$(git grep -lE 'LIVEDMA_(SCHEDULES|STORM_SECONDS)' -- 'tests/**/test_*.py')
	env LIVEDMA_FULL=1 pytest tests/mounts tests/conformance/test_inside_nfsd.py \
	  $$(git grep -l 'from scale import' -- 'tests/**/test_*.py')
	livedma experiment ahead
	livedma experiment tide --full
	$(MAKE) fuzz FUZZ_SECONDS=$(NIGHTLY_SECONDS)

build-threads/build.ninja:
	CC=clang meson setup build-threads -Dwerror=true -Dpython=false -Dnative_tests=true \
	  -Dbuildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false >/dev/null

sanitize: setup .venv/tools build-fuzz/build.ninja build-threads/build.ninja ## the C tests under ASan, UBSan and TSan, and the fuzzers' corpus
	$(NINJA) -C build-fuzz
	$(MESON_TEST) -C build-fuzz
	$(NINJA) -C build-threads $(THREADED:%=tests/test_%)
	$(MESON_TEST) -C build-threads --no-rebuild $(THREADED)
