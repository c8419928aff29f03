# Fuzzing and sanitizers, in build directories of their own. Included by the Makefile.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := packet capfile
FUZZ_SANITIZE := -Db_sanitize=address,undefined -Db_lundef=false

.PHONY: fuzz sanitize

build-fuzz/build.ninja:
	CC=clang meson setup build-fuzz -Dpython=false -Dfuzzers=true -Dcore_tests=true --buildtype=debugoptimized $(FUZZ_SANITIZE) >/dev/null

fuzz: setup build-fuzz/build.ninja ## fuzz the C parser and the file readers (FUZZ_SECONDS=60 each)
	ninja -C build-fuzz
	@for t in $(FUZZ_TARGETS); do mkdir -p build-fuzz/found/$$t; echo "fuzzing $$t for $(FUZZ_SECONDS) s"; \
	  build-fuzz/fuzz/fuzz_$$t -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -print_final_stats=1 -verbosity=0 \
	    -artifact_prefix=build-fuzz/$$t- build-fuzz/found/$$t fuzz/corpus/$$t || exit 1; done

sanitize: setup build-fuzz/build.ninja ## replay the fuzzers' corpus and the C tests under ASan and UBSan
	ninja -C build-fuzz
	meson test -C build-fuzz --print-errorlogs
