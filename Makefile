# The words a newcomer needs: serve, test, bench, format, lint. `make help` lists the rest.

MODEL ?= models/smollm2-135m-instruct-q4_1.gguf
MODELS ?= all
HOST ?= 127.0.0.1
PORT ?= 8000
SUITES ?= checks unit e2e
SETUP = --all
JOBS ?= $(shell nproc)

# ccache, where there is one, must see the same paths in every clone.
export CCACHE_BASEDIR := $(CURDIR)
CMAKE_FLAGS = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
SOURCES = find src apps tests bench -name '*.h' -o -name '*.cc'

.PHONY: help
help:
	@echo 'make serve    build, fetch SmolLM2 (98 MB) and serve it on http://$(HOST):$(PORT)/v1'
	@echo '              MODEL=path/to/file.gguf PORT=8000 HOST=127.0.0.1 choose otherwise'
	@echo 'make test     build, fetch the models (2 GB; MODELS=small: 350 MB) and run every test'
	@echo 'make bench    measure this machine and MODEL, and say how to run the benchmarks of the kernels'
	@echo 'make format   clang-format every source'
	@echo 'make lint     format, layering, instruction-set and clang-tidy checks'
	@echo
	@echo 'make build        the release binary: build/release/kvasir'
	@echo 'make test-full    all tests, those of speculation with a thousand prompts per drafter (hours)'
	@echo 'make test-dev     unit tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make test-tsan    engine and server tests under ThreadSanitizer'
	@echo 'make soak         random scenarios against the real scheduler and engine for SECONDS=600 (or SEEDS=100000)'
	@echo 'make test-neon    the kernels and a model as AArch64 programs, under qemu'
	@echo 'make goldens      make tests/data/golden and tests/data/tiny again from transformers (installs torch)'
	@echo 'make head-goldens  make tests/data/heads again with vLLM (installs it and builds llama.cpp)'
	@echo 'make bench-peers  measure Kvasir, llama.cpp and OpenVINO side by side (builds and installs them;'
	@echo '                  PEERS="--long --models smollm2" chooses)'
	@echo 'make bench-serving  put loads over HTTP to Kvasir, llama-server and OpenVINO; SERVING="mixed --rate 8"'
	@echo '                  chooses (bench/serving/README.md)'
	@echo 'make soak-http    ten minutes of rough clients against a small pool (SECONDS=60 for less)'
	@echo 'make clean        remove build/'

.PHONY: setup
setup:
	@tools/setup.sh

.PHONY: build
build: setup
	@cmake --preset release $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset release -j $(JOBS) --target kvasir

.PHONY: serve
serve: build
	@$(if $(filter models/smollm2%,$(MODEL)),python3 tools/fetch_models.py smollm2)
	@echo 'Once it is up, ask it something from another terminal:'
	@echo "  curl -s http://$(HOST):$(PORT)/v1/chat/completions -H 'Content-Type: application/json' \\"
	@echo "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of Japan?\"}]}'"
	@exec build/release/kvasir serve $(MODEL) --host $(HOST) --port $(PORT)

# The two small models are needed; without the larger ones their tests are skipped.
.PHONY: models
models: setup
	@python3 tools/fetch_models.py small
	@python3 tools/fetch_models.py $(MODELS) || echo 'The tests of the larger models will be skipped.'

.PHONY: test
test: models
	@tools/setup.sh $(SETUP)
	@python3 tools/run_tests.py --jobs $(JOBS) $(if $(BUDGET),--budget $(BUDGET)) $(SUITES)

# Hours: speculation over real models, each drafter with more than a thousand prompts.
.PHONY: test-full
test-full: export KVASIR_TEST_FULL = 1
test-full: test

.PHONY: test-dev test-tsan test-neon
test-dev: SUITES = asan
test-tsan: SUITES = tsan
test-neon: SUITES = neon
test-neon: SETUP = --neon
test-dev test-tsan test-neon: test

# Other seeds than the short run of `make test`; FIRST=N begins elsewhere. A seed that fails is printed with the
# line that plays it again.
SECONDS ?= 600
FIRST ?= 100000
SOAK = $(if $(SEEDS),--seeds $(SEEDS),--seconds $(shell expr $(SECONDS) / 2)) --first $(FIRST)
.PHONY: soak
soak: setup
	@cmake --preset release $(CMAKE_FLAGS) >/dev/null
	@cmake --build --preset release -j $(JOBS) --target kvasir_sim
	@build/release/tests/sim/kvasir_sim --world scheduler $(SOAK)
	@build/release/tests/sim/kvasir_sim --world engine $(SOAK)

.PHONY: bench
bench: build
	@$(if $(filter models/smollm2%,$(MODEL)),python3 tools/fetch_models.py smollm2)
	@build/release/kvasir bench machine
	@echo
	@build/release/kvasir bench $(MODEL)
	@echo
	@echo 'Kernel by kernel, as parts of what this machine can do (bench/*_bench.cc):'
	@echo '  cmake --preset bench && cmake --build --preset bench --target kernel_benches'
	@echo '  build/bench/bench/linear_bench --benchmark_filter="avx512.*rows:1$$"'
	@echo 'and so attention_bench, elementwise_bench, quantize_bench and sampler_bench.'

.PHONY: format
format:
	@tools/setup.sh --python
	@$(SOURCES) | xargs .venv/bin/clang-format -i

.PHONY: lint
lint: build
	@tools/setup.sh --python --lint
	@python3 tools/run_tests.py --jobs $(JOBS) checks tidy

.PHONY: goldens
goldens:
	@tools/setup.sh --peers
	@python3 tools/fetch_models.py all
	@.venv-peers/bin/python tools/golden/make_logits.py
	@.venv-peers/bin/python tools/tiny/make_models.py

.PHONY: head-goldens
head-goldens:
	@bench/serving/install_vllm.sh
	@bench/peers/build_llama_cpp.sh
	@.venv-peers/vllm/bin/python tools/head_goldens/make_goldens.py

.PHONY: bench-peers
bench-peers: build
	@tools/setup.sh --python --openvino
	@python3 tools/fetch_models.py all
	@bench/peers/build_llama_cpp.sh
	@.venv/bin/python bench/peers/compare.py $(PEERS)

SERVING ?= shared --servers kvasir,llama-server,openvino --rounds 3
.PHONY: bench-serving
bench-serving: build
	@tools/setup.sh --python --openvino
	@python3 tools/fetch_models.py smollm2
	@bench/peers/build_llama_cpp.sh
	@.venv/bin/python bench/serving/serving_bench.py $(SERVING)

SECONDS ?= 600
.PHONY: soak-http
soak-http: build
	@tools/setup.sh --python
	@python3 tools/fetch_models.py smollm2
	@.venv/bin/python bench/serving/serving_bench.py soak --seconds $(SECONDS)

.PHONY: clean
clean:
	@rm -rf build
