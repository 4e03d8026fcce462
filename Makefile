# Two commands: `make quickstart` and `make test`. `make help` lists the rest.
.PHONY: help quickstart setup build programs install wheel deb docs picture adapters-picture page-pictures clean
.PHONY: test test-long test-engines test-gpu test-processors sanitizers soak flips fuzz hangs hosts checks parity unlearn-demo
.PHONY: bench bench-adapters bench-agents bench-classification bench-families bench-keeping bench-launch bench-monitor bench-ops bench-parallel bench-preference bench-tokenizers bench-unlearning
.PHONY: bench-generate bench-predict bench-scaling bench-start plan-validation plan-machine

LIBTORCH ?=
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
# 1: libtorch's GPU set, and CUDA must be built; 0: without; empty: 1 if a driver is there, else CUDA is compiled if nvcc is.
LOCKSTEP_CUDA ?= $(if $(wildcard /proc/driver/nvidia/version),1)
# UNITY=0 compiles each file by itself: the first build takes far longer, and later ones compile what changed alone.
UNITY ?= 1
# LOCKSTEP_WERROR=1 treats compiler warnings as errors.
CMAKE_FLAGS := -DLOCKSTEP_WERROR=$(if $(filter 1,$(LOCKSTEP_WERROR)),ON,OFF) -DLOCKSTEP_CUDA=$(or $(patsubst 0,OFF,$(patsubst 1,ON,$(LOCKSTEP_CUDA))),AUTO) -DLOCKSTEP_UNITY=$(if $(filter 0,$(UNITY)),OFF,ON) \
  $(if $(LIBTORCH),-DLIBTORCH=$(abspath $(LIBTORCH)))
COMPILE = python3 tools/build.py $(BUILD) -j $(JOBS)
export LIBTORCH LOCKSTEP_CUDA

help:
	@echo "make quickstart            set up, build, and train, evaluate and use a small GPT-2 (DATA=file.txt: on your text)"
	@echo "make unlearn-demo          a small Llama learns facts, is made to forget some, and what is left (DATA=folder: TOFU's files; RANKS=n)"
	@echo "make build                 set up and build build/release/lockstep"
	@echo "make install PREFIX=dir    the program, and the library for find_package(lockstep)"
	@echo "make wheel                 a Python wheel beside torch's, into build/dist (docs/install.md)"
	@echo "make deb                   a Debian package with the libtorch that it needs, into build/dist"
	@echo "make docs                  the guides with a search and the reference of the headers, into build/docs; llms.txt"
	@echo "make picture               the README's picture, of the quick start on this machine"
	@echo "make adapters-picture      that of docs/adapters.md: LoRA and QLoRA beside training all weights, on this machine"
	@echo "make page-pictures         the pictures of docs/monitor.md, by a Chromium"
	@echo "make programs              set up, and build all that the tests run"
	@echo "make test                  set up, build, and run the tests that need no GPU (TESTS=name: those whose name has it)"
	@echo "make test-long             the tests that take longer: every family under every plan, each guide's commands, lost hosts"
	@echo "make test-gpu              the tests that need an NVIDIA GPU (with LOCKSTEP_CUDA=1)"
	@echo "make test-processors       the tests that compute, as other processors would run them (PROCESSORS=--full: all of it)"
	@echo "make hangs                 200 ranks stopped one after the other: each is to be named (TRIALS=n)"
	@echo "make hosts LOSSES=50       the machine that hosts a job is lost, again and again: the others go on (needs root)"
	@echo "make soak FAULTS=1200      that many faults done to a run: it has to be the undisturbed one in the end (SEED=n)"
	@echo "make flips TRIALS=100       that many bits flipped in a rank's memory, in what other ranks hold too: each is to be found"
	@echo "make fuzz HOURS=4          what reads bytes of unknown origin, under libFuzzer, ASan and UBSan (PARSERS=yaml,http; WILD=1: beginning with files of other packages as well;"
	@echo "                           INPUTS=10000000: a campaign of so many for each, which goes on where it was interrupted)"
	@echo "make sanitizers            the modules without libtorch under ASan, UBSan and TSan, and every input of the fuzzer's again"
	@echo "make test-engines          SLURM, MPI, Ray, the image of deploy/Dockerfile and the wheel by pip, each where it is installed"
	@echo "make checks                format, includes, file sizes, and each public header by itself"
	@echo "make parity                the tests against Hugging Face's transformers, and of Python scripts under launch"
	@echo "make bench                 Lockstep beside its peers; BENCH='--models small --repeats 1': a part of it"
	@echo "make plan-validation       predicted against published step times and memory (RUNS=file.csv: of another file)"
	@echo "make plan-machine          predicted against measured step times and memory of plans on this machine (PLAN_MACHINE=...)"
	@echo "make bench-launch          the overhead of launching beside torchrun, accelerate and deepspeed (BENCH_LAUNCH=...)"
	@echo "make bench-adapters        LoRA and NF4 beside Trainer with PEFT and bitsandbytes (BENCH='--steps 4 --warm 1 --repeats 1')"
	@echo "make bench-agents          how long up to 1,024 nodes take to meet, all but one pretended"
	@echo "make bench-monitor         what watching a run costs (BENCH='--runs --pairs 20 --steps 40': by pairs of runs; BENCH=--open: how soon the page of a long run is there; --heartbeats: what they cost)"
	@echo "make bench-tokenizers      MB/s beside tiktoken and Hugging Face's tokenizers"
	@echo "make bench-classification  a small classifier beside Hugging Face's Trainer: accuracy, samples/s, memory (BENCH='--rows 500 --repeats 1')"
	@echo "make bench-families        Qwen3, BERT and a mixture of experts beside Hugging Face's Trainer; Muon beside AdamW (BENCH='--models qwen3 --repeats 1')"
	@echo "make bench-keeping         saves beside the disk; what a save every step, copies in memory and checked products cost a step"
	@echo "make bench-preference      DPO beside TRL: tokens/s, memory (BENCH='--pairs 64 --repeats 1')"
	@echo "make bench-unlearning      TOFU's suite beside a loop of transformers (DATA=folder: TOFU's files; BENCH='--rows 20 --repeats 1')"
	@echo "make bench-parallel        tensor, context and pipeline parallelism beside data parallelism (BENCH='--types float32 --repeats 1')"
	@echo "make bench-generate        tokens/s of generation beside transformers, llama.cpp and the memory's rate; of lockstep eval"
	@echo "make bench-predict         20 settings, what was predicted of their time and memory and what they took (BENCH=--calibrate)"
	@echo "make bench-scaling         ranks, threads, tokens of a step, and a token's cost by each size; draws docs/scaling.svg"
	@echo "make bench-start           from the command to the first forward pass, with 1 GB of weights too"
	@echo "make bench-ops             each operation beside the plain one that it replaces"
	@echo "UNITY=0                    each file compiled by itself: for who changes Lockstep"
	@echo "PRESET=debug|asan|tsan     another build; LIBTORCH=dir: an installed libtorch; LOCKSTEP_CUDA=1: with CUDA"

setup:
	@tools/setup.sh

# CMake is asked anew only where it has not been, or was with other flags; Ninja does the rest.
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

# All that the tests run.
programs: $(BUILD)/.flags
	@$(COMPILE)

test test-long: $(BUILD)/.flags
	@$(COMPILE)
	@python3 tools/run_tests.py $(BUILD) $(if $(AGAIN),--again) --cores $(JOBS) $(if $(TESTS),-R '$(TESTS)') $(if $(filter test-long,$@),-L long)

test-gpu: $(BUILD)/.flags
	@$(COMPILE)
	@ctest --test-dir $(BUILD) --output-on-failure -L gpu

# 200 ranks stopped one after the other, on 3 to 8 ranks: each has to be named, and nobody else.
hangs: build
	@cd tests/program && LOCKSTEP_HANG_TRIALS=$(or $(TRIALS),200) LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep \
	  python3 test_hang.py Hang.test_the_launcher_names_who_is_stopped_while_the_run_goes_on

# The machine that hosts a job of three is lost, in four ways; the others are to go on under an heir. Machines are network namespaces.
hosts: build
	@LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep python3 tests/soak/hosts.py --losses $(or $(LOSSES),50) --seed $(or $(SEED),1)

# Faults done to a run one after the other; in the end it is to be the run to which none was.
soak: build
	@LOCKSTEP_PROGRAM=$(abspath $(BUILD))/lockstep python3 tests/soak/soak.py --faults $(or $(FAULTS),12) --seed $(or $(SEED),1)

# Bits flipped in one rank's copy of what all hold: each is to be found, with the rank's name, or to change nothing.
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

# By Clang, with the objects of `make fuzz`; ASAN=asan: by GCC.
ASAN ?= fuzz
sanitizers: $(FUZZ)/.configured
	@for kind in address:$(ASAN) thread:tsan; do \
	  preset=$${kind#*:} && mkdir -p build/$$preset && cmake --preset $$preset $(CMAKE_FLAGS) -DLOCKSTEP_CUDA=OFF >build/$$preset.log && \
	  python3 tools/build.py build/$$preset -j $(JOBS) $$(python3 tools/sanitizers.py targets $${kind%:*}) && \
	  python3 tools/sanitizers.py run $${kind%:*} build/$$preset -j $(JOBS) || exit 1; done

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
	@test -n "$(RUNS)" || { echo "there is no shared/plan/published_runs.csv here or one folder up: give RUNS=file.csv"; exit 2; }
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

# The README's picture, of a run on this machine.
picture: quickstart
	@python3 tools/draw_run.py quickstart/run docs/quick_start.svg --title "make quickstart: GPT-2 of 3 million parameters, $$(nproc) cores ($$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1 | tr -s ' '))"

# That of docs/adapters.md: three small runs of fine-tuning on this machine.
adapters-picture: build
	@tools/adapters_demo.sh $(BUILD)/lockstep docs/adapters.svg

# Those of docs/monitor.md, of two small runs on this machine.
page-pictures: build
	@tools/setup.sh browser
	@python3 tools/page_pictures.py $(BUILD)/lockstep docs/pictures

bench-classification: DATA ?= $(firstword $(wildcard shared/data ../shared/data))
bench-classification: build
	@test -n "$(DATA)" || { echo "there is no shared/data here or one folder up: give DATA=FOLDER with sst2/ and banking77/"; exit 2; }
	@tools/setup.sh peers
	@python3 bench/classification.py --program $(BUILD)/lockstep --data $(DATA) $(BENCH)

# What saves, copies in memory and checked products cost.
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
	@test -n "$(DATA)" || { echo "there is no shared/data/unlearning/tofu here or one folder up: give DATA=FOLDER with TOFU's files"; exit 2; }
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
