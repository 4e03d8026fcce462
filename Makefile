# Two commands: `make quickstart` and `make test`. `make help` lists the rest.
.PHONY: help quickstart setup build programs install wheel deb docs picture adapters-picture page-pictures clean
.PHONY: fresh arm-check try-torch
.PHONY: test test-long test-engines test-gpu test-processors sanitizers soak flips fuzz hangs hosts checks parity unlearn-demo
.PHONY: bench bench-adapters bench-agents bench-classification bench-families bench-keeping bench-launch bench-monitor bench-ops bench-parallel bench-preference bench-tokenizers bench-unlearning
.PHONY: bench-generate bench-predict bench-scaling bench-start plan-validation plan-machine

LIBTORCH ?=
# TORCH=version: another version of libtorch than the one that tools/setup.sh names.
TORCH ?=
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
# 1: use the GPU build of libtorch and require CUDA; 0: no CUDA; empty: 1 if an NVIDIA driver is loaded, otherwise compile the
# CUDA library if nvcc is installed.
LOCKSTEP_CUDA ?= $(if $(wildcard /proc/driver/nvidia/version),1)
# UNITY=0 compiles each file separately: the first build is much slower, later builds compile only the changed files.
UNITY ?= 1
# LOCKSTEP_WERROR=1 treats compiler warnings as errors.
CMAKE_FLAGS := -DLOCKSTEP_WERROR=$(if $(filter 1,$(LOCKSTEP_WERROR)),ON,OFF) -DLOCKSTEP_CUDA=$(or $(patsubst 0,OFF,$(patsubst 1,ON,$(LOCKSTEP_CUDA))),AUTO) -DLOCKSTEP_UNITY=$(if $(filter 0,$(UNITY)),OFF,ON) \
  $(if $(LIBTORCH)$(TORCH),-DLIBTORCH=$(abspath $(or $(LIBTORCH),.deps/libtorch-$(TORCH)/torch)))
COMPILE = python3 tools/build.py $(BUILD) -j $(JOBS)
export LIBTORCH TORCH LOCKSTEP_CUDA

help:
	@echo "make quickstart            set up, build, then train, evaluate and sample a small GPT-2 (DATA=file.txt: on your own text)"
	@echo "make unlearn-demo          train a small Llama on facts, unlearn some of them, measure the result (DATA=folder of TOFU files; RANKS=n)"
	@echo "make build                 set up and build build/release/lockstep"
	@echo "make install PREFIX=dir    install the program and the library for find_package(lockstep)"
	@echo "make wheel                 build a Python wheel that uses an installed torch, in build/dist (docs/install.md)"
	@echo "make deb                   build a Debian package that includes libtorch, in build/dist"
	@echo "make docs                  build the guides, their search and the API reference in build/docs; update llms.txt"
	@echo "make picture               redraw the README's picture from the quick start on this machine"
	@echo "make adapters-picture      redraw the picture of docs/adapters.md: LoRA and QLoRA compared with full fine-tuning"
	@echo "make page-pictures         redraw the screenshots of docs/monitor.md with Chromium"
	@echo "make programs              set up and build everything that the tests run"
	@echo "make test                  set up, build, and run the tests that need no GPU (TESTS=name: only matching tests)"
	@echo "make test-long             run the long tests: every family under every plan, the guides' commands, lost nodes"
	@echo "make test-gpu              run the tests that need an NVIDIA GPU (with LOCKSTEP_CUDA=1)"
	@echo "make test-processors       run the computing tests under other instruction sets and thread counts (PROCESSORS=--full: all of them)"
	@echo "make hangs                 stop 200 ranks, one at a time; each must be named (TRIALS=n)"
	@echo "make hosts LOSSES=50       repeatedly lose the node that hosts a job; the job must continue (needs root)"
	@echo "make soak FAULTS=1200      inject faults into a run; it must end like the undisturbed run (SEED=n)"
	@echo "make flips TRIALS=100      flip bits in a rank's memory; each flip must be detected"
	@echo "make fuzz HOURS=4          fuzz all parsers under libFuzzer, ASan and UBSan (PARSERS=yaml,http; SEED=n; INPUTS=n per parser;"
	@echo "                           WILD=1: start from files of other packages)"
	@echo "make sanitizers            run the tests of modules without libtorch under ASan, UBSan and TSan, and the fuzzing corpus"
	@echo "make test-engines          run the tests of SLURM, MPI, Ray, Kubernetes, the container image and the wheel, if installed"
	@echo "make fresh SUITE=trixie    run make quickstart in a new Debian system, as root and as a normal user (docs/install.md; needs root)"
	@echo "make arm-check             cross-compile for 64-bit Arm and run unit tests under qemu (ARM='ops': of other modules)"
	@echo "make try-torch TORCH=2.15.0  build with another version of libtorch, test it, compare its results"
	@echo "make checks                check format, includes, file sizes, language, and that each public header compiles by itself"
	@echo "make parity                run the tests against Hugging Face transformers, PEFT and TRL, and of Python scripts under launch"
	@echo "make bench                 benchmark Lockstep and its peers (BENCH='--models small --repeats 1')"
	@echo "make plan-validation       compare predicted with published step times and memory (RUNS=file.csv)"
	@echo "make plan-machine          compare predicted with measured plans on this machine (PLAN_MACHINE=...)"
	@echo "make bench-launch          launch overhead compared with torchrun, accelerate and deepspeed (BENCH_LAUNCH=...)"
	@echo "make bench-adapters        LoRA and NF4 compared with Trainer, PEFT and bitsandbytes (BENCH='--steps 4 --warm 1 --repeats 1')"
	@echo "make bench-agents          rendezvous time of up to 1,024 simulated nodes"
	@echo "make bench-monitor         cost of monitoring (BENCH='--runs --pairs 20 --steps 40', --open or --heartbeats)"
	@echo "make bench-tokenizers      tokenizer throughput compared with tiktoken and Hugging Face tokenizers"
	@echo "make bench-classification  a small classifier compared with Trainer: accuracy, samples/s, memory (BENCH='--rows 500 --repeats 1')"
	@echo "make bench-families        Qwen3, BERT and a mixture of experts compared with Trainer; Muon with AdamW (BENCH='--models qwen3 --repeats 1')"
	@echo "make bench-keeping         checkpoint bandwidth, and the cost of frequent saves, in-memory checkpoints and checked products"
	@echo "make bench-preference      DPO compared with TRL: tokens/s, memory (BENCH='--pairs 64 --repeats 1')"
	@echo "make bench-unlearning      the TOFU suite compared with transformers (DATA=folder of TOFU files; BENCH='--rows 20 --repeats 1')"
	@echo "make bench-parallel        tensor, context and pipeline parallelism compared with data parallelism (BENCH='--types float32 --repeats 1')"
	@echo "make bench-generate        generation and evaluation throughput compared with transformers and llama.cpp"
	@echo "make bench-predict         predicted and measured time and memory of 20 settings (BENCH=--calibrate)"
	@echo "make bench-scaling         scaling with ranks, threads and tokens per step; redraws docs/scaling.svg"
	@echo "make bench-start           start-up time to the first forward pass, with and without 1 GB of weights"
	@echo "make bench-ops             each operation compared with its plain ATen version"
	@echo "UNITY=0                    compile each file separately, for development"
	@echo "PRESET=debug|asan|tsan     another build; LIBTORCH=dir: an installed libtorch; TORCH=version: another version; LOCKSTEP_CUDA=1: with CUDA; LOCKSTEP_WERROR=1: warnings are errors"

setup:
	@tools/setup.sh

# Runs CMake if it has not run yet or ran with other flags. Ninja does the rest.
$(BUILD)/.flags: setup
	@mkdir -p $(BUILD)
	@echo '$(CMAKE_FLAGS)' | cmp -s - $@ || { rm -f $(BUILD)/CMakeCache.txt; cmake --preset $(PRESET) $(CMAKE_FLAGS) >$(BUILD).log && echo '$(CMAKE_FLAGS)' >$@; }

build: $(BUILD)/.flags
	@$(COMPILE) lockstep accelerators

PREFIX ?= /usr/local
install: $(BUILD)/.flags
	@$(COMPILE) lockstep accelerators lockstep_archive lockstep_headers
	@cmake --install $(BUILD) --prefix $(PREFIX) >/dev/null
	@echo "installed into $(PREFIX)"

wheel: $(BUILD)/.flags
	@$(COMPILE) lockstep accelerators lockstep_archive lockstep_headers
	@python3 tools/make_wheel.py $(BUILD)

deb: $(BUILD)/.flags
	@$(COMPILE) lockstep accelerators lockstep_archive lockstep_headers
	@python3 tools/make_deb.py $(BUILD) $(DEB)

unlearn-demo: RANKS ?= 2
unlearn-demo: DATA ?= $(firstword $(wildcard shared/data/unlearning/tofu ../shared/data/unlearning/tofu))
unlearn-demo: build
	@python3 tools/unlearn_demo.py $(BUILD)/lockstep unlearn-demo $(if $(DATA),--data $(DATA)) --ranks $(RANKS)

# Everything that the tests run.
programs: $(BUILD)/.flags
	@$(COMPILE)

test test-long: $(BUILD)/.flags
	@$(COMPILE)
	@python3 tools/run_tests.py $(BUILD) $(if $(AGAIN),--again) $(if $(MAY_SKIP),--may-skip $(MAY_SKIP)) --cores $(JOBS) $(if $(TESTS),-R '$(TESTS)') $(if $(filter test-long,$@),-L long)

test-gpu: $(BUILD)/.flags
	@$(COMPILE)
	@ctest --test-dir $(BUILD) --output-on-failure -L gpu

# Stops 200 ranks sequentially in jobs of 3 to 8 ranks. The launcher must name each stopped rank and no other.
hangs: build
	@cd tests/program && LOCKSTEP_HANG_TRIALS=$(or $(TRIALS),200) LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep \
	  python3 test_hang.py Hang.test_launcher_names_stopped_ranks

# Loses the coordinator's node of a three-node job in four ways. The job must continue under a standby coordinator. Nodes are
# network namespaces.
hosts: build
	@LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep python3 tests/soak/hosts.py --losses $(or $(LOSSES),50) --seed $(or $(SEED),1)

# Injects faults into a run sequentially. It must end with the loss of the undisturbed run.
soak: build
	@LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep python3 tests/soak/soak.py --faults $(or $(FAULTS),12) --seed $(or $(SEED),1)

# Flips bits in one rank's copy of replicated state. Each flip must be reported with the rank, or have no effect.
flips: build
	@LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep python3 tests/soak/flips.py --trials $(or $(TRIALS),100) --seed $(or $(SEED),1)

FUZZ := build/fuzz
$(FUZZ)/.configured: CMakePresets.json
	@tools/setup.sh fuzz
	@mkdir -p $(FUZZ) && cmake --preset fuzz $(CMAKE_FLAGS) -DLOCKSTEP_CUDA=OFF >$(FUZZ).log && touch $@

HOURS ?= 0
SECONDS ?= 20
fuzz: $(FUZZ)/.configured
	@python3 tools/build.py $(FUZZ) -j $(JOBS) fuzz_parsers
	@python3 tools/fuzz.py $(FUZZ) -j $(JOBS) $(if $(filter-out 0,$(HOURS)),--hours $(HOURS),$(if $(INPUTS),,--seconds $(SECONDS))) $(if $(INPUTS),--inputs $(INPUTS)) $(if $(PARSERS),--parsers $(PARSERS)) $(if $(SEED),--seed $(SEED)) $(if $(WILD),--wild)

# Uses Clang and the objects of `make fuzz`; ASAN=asan uses GCC.
ASAN ?= fuzz
sanitizers: $(FUZZ)/.configured
	@for kind in address:$(ASAN) thread:tsan; do \
	  preset=$${kind#*:} && mkdir -p build/$$preset && cmake --preset $$preset $(CMAKE_FLAGS) -DLOCKSTEP_CUDA=OFF >build/$$preset.log && \
	  python3 tools/build.py build/$$preset -j $(JOBS) $$(python3 tools/sanitizers.py targets $${kind%:*}) && \
	  python3 tools/sanitizers.py run $${kind%:*} build/$$preset -j $(JOBS) || exit 1; done

fresh:
	@tools/fresh.sh $(or $(SUITE),trixie)

arm-check:
	@tools/arm_check.sh $(ARM)

try-torch:
	@tools/try_torch.sh $(TORCH)

test-engines: deb
	@ctest --test-dir $(BUILD) --output-on-failure -L engines

test-processors: $(BUILD)/.flags
	@$(COMPILE)
	@BUILD=$(BUILD) JOBS=$(JOBS) tools/test_processors.sh $(PROCESSORS)

quickstart: $(BUILD)/.flags
	@$(COMPILE) lockstep $(if $(filter 1,$(LOCKSTEP_CUDA)),accelerators)
	@tools/quickstart.sh $(BUILD)/lockstep $(DATA)

checks: $(BUILD)/.flags
	@tools/setup.sh style
	@tools/check_format.sh
	@python3 tools/check_includes.py
	@python3 tools/check_sizes.py
	@python3 tools/check_language.py
	@$(COMPILE) public_headers

parity: $(BUILD)/.flags
	@$(COMPILE)
	@tools/setup.sh parity
	@ctest --test-dir $(BUILD) -R '^launch\.Python' --output-on-failure -j $(JOBS)
	@LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep LOCKSTEP_BUILD=$(abspath $(BUILD)) OMP_NUM_THREADS=1 \
	  .deps/python/bin/python -m pytest -q -n $(JOBS) --dist loadfile --durations 10 tests/parity

bench: build
	@tools/setup.sh peers
	@python3 bench/run.py --program $(BUILD)/lockstep $(BENCH)
	@python3 bench/launch.py --program $(BUILD)/lockstep $(BENCH_LAUNCH)

bench-adapters: build
	@tools/setup.sh peers
	@python3 bench/adapters.py --program $(BUILD)/lockstep $(BENCH)

bench-agents: build
	@python3 bench/agents.py --program $(BUILD)/lockstep $(BENCH)

bench-monitor: build
	@python3 bench/monitor.py --program $(BUILD)/lockstep $(BENCH)

bench-launch: build
	@tools/setup.sh peers
	@python3 bench/launch.py --program $(BUILD)/lockstep $(BENCH_LAUNCH)

RUNS ?= $(firstword $(wildcard shared/plan/published_runs.csv ../shared/plan/published_runs.csv))
plan-validation: $(BUILD)/.flags
	@test -n "$(RUNS)" || { echo "shared/plan/published_runs.csv: not found; set RUNS=file.csv"; exit 2; }
	@$(COMPILE) published_runs
	@$(BUILD)/published_runs "$(RUNS)"

bench-tokenizers: build
	@tools/setup.sh tokenizers
	@cmake --preset $(PRESET) $(CMAKE_FLAGS) -DLOCKSTEP_BENCH=ON >/dev/null
	@$(COMPILE) tokenizer_bench
	@.deps/tokenizers/bin/python bench/tokenizer_speed.py --program $(BUILD)/lockstep $(BENCH)

docs:
	@tools/setup.sh docs
	@tools/api_reference.sh build/docs
	@python3 tools/guides.py build/docs/guides --llms llms.txt

# Draws the README's picture from a run on this machine.
picture: quickstart
	@python3 tools/draw_run.py quickstart/run docs/quick_start.svg --title "make quickstart: GPT-2 of 3 million parameters, $$(nproc) cores ($$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1 | tr -s ' '))"

# Draws the picture of docs/adapters.md from three small fine-tuning runs.
adapters-picture: build
	@tools/adapters_demo.sh $(BUILD)/lockstep docs/adapters.svg

# Draws the screenshots of docs/monitor.md from two small runs.
page-pictures: build
	@tools/setup.sh browser
	@python3 tools/page_pictures.py $(BUILD)/lockstep docs/pictures

bench-classification: DATA ?= $(firstword $(wildcard shared/data ../shared/data))
bench-classification: build
	@test -n "$(DATA)" || { echo "shared/data: not found; set DATA=FOLDER with sst2/ and banking77/"; exit 2; }
	@tools/setup.sh peers
	@python3 bench/classification.py --program $(BUILD)/lockstep --data $(DATA) $(BENCH)

# The cost of saves, in-memory checkpoints and checked products.
bench-keeping: build
	@python3 bench/keeping.py --program $(BUILD)/lockstep $(BENCH)

bench-families: build
	@tools/setup.sh peers
	@python3 bench/families.py --program $(BUILD)/lockstep $(BENCH)

bench-preference: build
	@tools/setup.sh peers
	@python3 bench/preference.py --program $(BUILD)/lockstep $(BENCH)

bench-unlearning: DATA ?= $(firstword $(wildcard shared/data/unlearning/tofu ../shared/data/unlearning/tofu))
bench-unlearning: build
	@test -n "$(DATA)" || { echo "shared/data/unlearning/tofu: not found; set DATA=FOLDER with the TOFU files"; exit 2; }
	@tools/setup.sh peers
	@python3 bench/unlearning.py --program $(BUILD)/lockstep --data $(DATA) $(BENCH)

bench-parallel: build
	@python3 bench/parallel.py --program $(BUILD)/lockstep $(BENCH)

bench-generate: build
	@tools/setup.sh parity
	@.deps/python/bin/python bench/generate.py --program $(BUILD)/lockstep $(BENCH)

bench-predict: build
	@python3 bench/predict.py --program $(BUILD)/lockstep $(BENCH)

bench-scaling: build
	@python3 bench/scaling.py --program $(BUILD)/lockstep --svg docs/scaling.svg $(BENCH)

bench-start: build
	@python3 bench/start.py --program $(BUILD)/lockstep $(BENCH)

plan-machine: build
	@python3 bench/plan_machine.py --program $(BUILD)/lockstep $(PLAN_MACHINE)

bench-ops: $(BUILD)/.flags
	@cmake --preset $(PRESET) $(CMAKE_FLAGS) -DLOCKSTEP_BENCH=ON >/dev/null
	@$(COMPILE) ops_bench
	@$(BUILD)/ops_bench $(BENCH)

clean:
	rm -rf build
