# Front door. `make` builds, `make demo` and `make test` do everything, set-up included.
BUILD ?= build
JOBS  ?= $(shell nproc)

.PHONY: all setup demo test bench install format lint clean
all: setup
	@cmake -S . -B $(BUILD) $(CMAKE_ARGS) > /dev/null
	@cmake --build $(BUILD) -j $(JOBS)

setup:
	@tools/setup.sh

demo: all
	@tools/demo.sh $(BUILD)

test: all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: all
	@$(BUILD)/ssmscope bench

install: all
	@cmake --install $(BUILD)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

lint:
	@tools/lint.sh $(BUILD)

clean:
	@rm -rf $(BUILD)
