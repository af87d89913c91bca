# Thin wrapper around the CMake presets; `make help` lists the targets.
.PHONY: all demo test cuda cuda-test cuda-build cuda-races cuda-ptx serve asan tsan bench format lint install clean deps help
.DEFAULT_GOAL := all

JOBS := $(shell nproc)
C_FILES = $(shell git ls-files 'src/*.c' 'src/*.h' 'tests/*.c' 'tests/*.h' 'bench/*.c' 'examples/*.c')

all: deps            ## build the program, build/weir
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target weir

deps:
	@scripts/deps.sh

demo: all            ## set up, build, and watch eight chats stream at once
	@/usr/bin/python3 scripts/demo.py build/weir

test: deps           ## set up, build, and run all tests
	@cmake --preset release >/dev/null && cmake --build --preset release -j $(JOBS)
	@scripts/test.sh build

serve: all           ## build and keep the server running
	build/weir serve

cuda: deps           ## build the CUDA plugin, build/libweir_cuda.so, where nvcc is
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target weir_cuda

cuda-test: cuda-build ## all that a GPU can say: tests on it, compute-sanitizer, bench (MODELS=...)
	@scripts/cuda_test.sh $(MODELS)

cuda-build: cuda     ## what cuda-test needs, to be carried to a machine with a GPU
	@cmake --build --preset release -j $(JOBS) --target weir cuda_device_tests
	@mkdir -p build/cuda/lib && ldd build/weir build/cuda/cuda_device_* | awk '$$3 ~ /^\// {print $$3}' | \
	    sort -u | grep -vE '/(libc|libm|libgcc_s|libstdc)[.+]' | xargs cp -L -t build/cuda/lib

cuda-races: deps     ## the kernels' tests with every access checked for races; some minutes
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target cuda_races
	@for t in build/tests/cuda/cuda_races_*; do [ ! -f $$t ] || $$t || exit 1; done

cuda-ptx: deps       ## what nvcc makes of the kernels, run without a device (tests/cuda/ptx); an hour
	@scripts/cuda_ptx.sh 80 90a

asan: deps           ## the tests under AddressSanitizer and UBSan (WEIR_ALL_SHAPES=1: over all shapes)
	@cmake --preset asan >/dev/null && cmake --build --preset asan -j $(JOBS)
	@scripts/test.sh build-asan

tsan: deps           ## the same under ThreadSanitizer
	@cmake --preset tsan >/dev/null && cmake --build --preset tsan -j $(JOBS)
	@scripts/test.sh build-tsan

bench: all           ## speed of the built-in model beside this machine's limits
	build/weir bench

format:              ## clang-format everything in place
	@scripts/deps.sh lint
	@clang-format -i $(C_FILES)

lint:                ## clang-format, clang-tidy and the include graph, changing nothing
	@scripts/deps.sh lint
	@clang-format --dry-run -Werror $(C_FILES)
	@cmake --preset release >/dev/null
	@clang-tidy -p build --quiet $(shell git ls-files 'src/*.c')
	@/usr/bin/python3 tests/include_graph.py

install: all         ## install program, built-in model and library (PREFIX=/usr/local)
	@cmake --build --preset release -j $(JOBS) --target weir_embed
	@cmake --install build --prefix "$(or $(PREFIX),/usr/local)"

clean:               ## remove all build folders
	@rm -rf build build-debug build-asan build-tsan build-ptx-80 build-ptx-90a build-nvcc

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 12
