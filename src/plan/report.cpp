// Prints plans as tables, explanations, configuration files and drawings.
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "plan/cost/layer_budget.h"
#include "plan/machines/error_bars.h"
#include "plan/memory/memory_table.h"
#include "plan/search.h"
#include "schedule/draw.h"

namespace lockstep::plan {

namespace {

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

// Returns true if the job's split differs from the software's default.
bool has_own_split(const Job& job) {
  if (job.split.empty()) {
    return false;
  }
  Job plain = job;
  plain.split.clear();
  return split_layers(plain) != job.split;
}

}  // namespace

std::string plan_line(const Job& job) {
  std::string text = fmt::format("data {}", job.mesh.data);
  const auto axis = [&](const char* name, int size) {
    if (size > 1) {
      text += fmt::format(" × {} {}", name, size);
    }
  };
  axis("tensor", job.mesh.tensor);
  axis("pipeline", job.mesh.pipeline);
  axis("context", job.mesh.context);
  text += job.expert_ranks > 1 ? fmt::format(", experts over {}", job.expert_ranks) : "";
  text += fmt::format(
      ", zero {}{}, micro-batch {} × {}",
      job.zero_stage,
      job.shard_ranks > 0 && job.zero_stage > 0 ? fmt::format(" in groups of {}", job.shard_ranks)
                                                : "",
      job.micro_batch,
      job.micro_batches());
  if (job.mesh.pipeline > 1) {
    text += fmt::format(
        ", {}",
        job.schedule == schedule::Kind::kFile ? job.listed->path
                                              : schedule::kind_name(job.schedule));
    text += job.virtual_stages > 1 ? fmt::format(" of {}", job.virtual_stages) : "";
  }
  text += fmt::format(", recompute {}", recompute_name(job.recompute));
  text += job.offload == Offload::kNone
              ? ""
              : fmt::format(
                    ", offload {} to {}",
                    offload_name(job.offload),
                    job.offload_to == OffloadTo::kNvme ? "files" : "host memory");
  text += job.adapter_rank > 0 ? fmt::format(", adapters of rank {}", job.adapter_rank) : "";
  if (has_own_split(job)) {
    text += fmt::format(", layers {}", fmt::join(job.split, ","));
  }
  return text;
}

std::string precision_text(const Job& job) {
  if (job.precision == Precision::kFloat32) {
    return "float32";
  }
  std::string text = "16 bits with float32 masters";
  if (job.precision == Precision::kFloat8) {
    text += fmt::format(
        ", matrix products of {:.0f}% of the blocks in 8 bits with one scale per {}",
        100 * job.float8_share,
        job.software.scaling == Scaling::kRow ? "row" : "tensor");
  }
  return text;
}

void check_float8(const Job& job, const Cluster& cluster) {
  for (const NodeGroup& group : cluster.groups) {
    const Device& device = group.device;
    if (job.precision == Precision::kFloat8 && device.flops8 <= 0 && !device.is_cpu) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "precision.fp8: {} does not support 8-bit floating-point products", device.name),
          "remove it, or plan for devices that support them, such as rtx-4090, l40s, h100-80gb, "
          "h200, b200");
    }
  }
}

std::string parameters_text(const model::ModelConfig& model) {
  const double all = count_parameters(model).total() / 1e9;
  const std::string active =
      model.experts.count > 0
          ? fmt::format(", {:.3f} of them active", active_parameters(model) / 1e9)
          : "";
  return fmt::format("{:.3f} billion parameters{}", all, active);
}

namespace {

// Returns a note if the order of the fastest plans is uncertain.
std::string told_apart(const SearchResult& result, const Cluster& cluster) {
  const double bar = order_bar(cluster);
  const auto close = std::ranges::count_if(result.best, [&](const Candidate& c) {
    return c.step.step_seconds < result.best.front().step.step_seconds * bar;
  });
  return close < 2 ? ""
                   : fmt::format(
                         "the order of the first {} is uncertain: in published runs, pairs with "
                         "predictions less than {:.0f}% apart\n   were in the opposite order in "
                         "more than one of ten cases; measure a few steps of each to decide\n",
                         close,
                         100 * (bar - 1));
}

}  // namespace

std::string search_table(const SearchResult& result, const SearchRequest& request) {
  const Job& base = request.base;
  const Cluster& cluster = request.cluster;
  std::string text = fmt::format(
      "{}, {} sequences of {} tokens per step, {}\n",
      parameters_text(base.model),
      base.global_batch,
      base.data_length(),
      precision_text(base));
  for (const NodeGroup& group : cluster.groups) {
    text += fmt::format(
        "{} × {} {} ({:.0f} GB each, {:.0f} GB/s within the node, {:.1f} GB/s between nodes)\n",
        group.nodes,
        group.devices_per_node,
        group.device.name,
        group.device.memory_bytes / 1e9,
        group.peer_bandwidth / 1e9,
        group.network_bandwidth / 1e9);
  }
  const ErrorBars time = time_error_bars(cluster), memory = memory_error_bars(cluster);
  const std::string rate = text_of(inverse_of(time));
  int rank = 0;
  for (const Candidate& c : result.best) {
    text += fmt::format(
        "{}. {}\n   step {} ({}), {:.0f} tokens/s ({}), {:.1f}% of the peak ({}), {} ({}) of {} "
        "per device\n   {}\n",
        ++rank,
        plan_line(c.job),
        seconds_text(c.step.step_seconds),
        text_of(time),
        c.step.tokens_per_second,
        rate,
        100 * c.step.utilisation,
        rate,
        bytes_text(c.memory.total()),
        text_of(memory),
        bytes_text(usable_bytes(cluster.slowest().device)),
        c.reason);
  }
  text += told_apart(result, cluster);
  for (const auto& [what, why] : result.refused) {
    text += fmt::format("refused: {}: {}\n", what, why);
  }
  text += fmt::format(
      "{} plans: {} do not fit, {} save memory unnecessarily, {} cannot be among the best (by "
      "their lower bound), {} simulated\n",
      result.considered,
      result.out_of_memory,
      result.needless,
      result.bounded,
      result.simulated);
  return text;
}

namespace {

// Returns the times of a step outside the pipeline, in drawing order.
std::vector<schedule::Closing> besides(const Step& step) {
  std::vector<schedule::Closing> all{
      {"exposed gradient reductions and gathers", step.data},
      {"compute slowed by concurrent communication", step.slowed},
      {"waits for the slowest rank", step.waits},
      {"exposed copies to and from the host", step.offload},
      {"optimizer", step.optimizer},
      {"other: data, logging", step.rest}};
  std::erase_if(all, [](const schedule::Closing& closing) { return closing.duration <= 0; });
  return all;
}

std::string time_table(const Step& step, const ErrorBars& bars) {
  std::string text = "where a step's time goes, on the slowest rank\n";
  const auto part = [&](const std::string& name, double seconds) {
    if (seconds > 0) {
      text += fmt::format(
          "  {:<44} {:>10}  {:5.1f}%\n",
          name,
          seconds_text(seconds),
          100 * seconds / step.step_seconds);
    }
  };
  constexpr std::array<const char*, kKernelKinds> kKernelNames{
      "matrix products of the blocks",
      "attention",
      "norms, activations and other kernels",
      "exposed context-parallel communication",
      "expert-parallel all-to-all",
      "head and loss",
      "gradient accumulation"};
  for (size_t kind = 0; kind < kKernelKinds; ++kind) {
    part(kKernelNames[kind], step.kernels[kind]);
  }
  part("recomputation", step.recompute);
  part("exposed tensor-parallel collectives", step.tensor);
  part("pipeline: bubble and messages", step.pipeline);
  for (const schedule::Closing& closing : besides(step)) {
    part(closing.name, closing.duration);
  }
  part("step", step.step_seconds);
  text += fmt::format(
      "  {:.0f} tokens/s, {:.1f}% of the peak, {:.1f} kJ per step\n  in nine of ten runs the step "
      "is {} to {}, of {} to {} kJ; the error of each part may be larger\n",
      step.tokens_per_second,
      100 * step.utilisation,
      step.joules / 1e3,
      seconds_text(step.step_seconds * bars.least),
      seconds_text(step.step_seconds * bars.most),
      fmt::format("{:.1f}", step.joules / 1e3 * bars.least),
      fmt::format("{:.1f}", step.joules / 1e3 * bars.most));
  text += fmt::format(
      "  {:.1f}% of the step is exposed communication", 100 * step.exposed() / step.step_seconds);
  text += step.bubble > 0
              ? fmt::format("; pipeline ranks are idle for {:.1f}% of it\n\n", 100 * step.bubble)
              : "\n\n";
  return text;
}

}  // namespace

std::string explain(const Job& job, const Cluster& cluster) {
  std::string text = plan_line(job) + "\n";
  const Device& device = cluster.slowest().device;
  if (job.precision == Precision::kFloat8) {
    text += precision_text(job) + (device.is_cpu ? ", emulated by the CPU" : "") + "\n";
    if (!device.is_cpu) {
      text += fmt::format(
          "{}: {:.0f} TFLOP/s in 8 bits, {:.0f} in 16{}\n",
          device.name,
          device.flops8 / 1e12,
          device.flops16 / 1e12,
          job.software.scaling == Scaling::kRow
              ? "; with one scale per row, kernels reached the 16-bit rate in published runs"
              : "");
    }
  }
  text += "\n" + time_table(simulate(job, cluster), time_error_bars(cluster));
  text += memory_table(job, device);
  const double peak = largest(estimate_memory(job)).peak.total();
  const ErrorBars memory = memory_error_bars(cluster);
  text += fmt::format(
      "  in nine of ten runs the peak is {} to {}\n",
      bytes_text(peak * memory.least),
      bytes_text(peak * memory.most));
  text += "\nsplit of each axis (in FlexFlow's terms, Jia et al., 2018)\n";
  const auto axis = [&](const char* name, int size, const char* what) {
    text += fmt::format("  {:<9} {:>5}  {}\n", name, size, what);
  };
  axis("data", job.mesh.data, "sample: each rank has its own sequences");
  axis("context", job.mesh.context, "attribute: each rank has a slice of every sequence");
  axis("tensor", job.mesh.tensor, "parameter: each rank has a shard of every matrix");
  axis("pipeline", job.mesh.pipeline, "operator: each rank has some of the blocks");
  if (const std::string budget = budget_table(job);
      !budget.empty() && !cluster.slowest().device.is_cpu) {
    text += "\n" + budget;
  }
  return text;
}

std::string plan_yaml(const Job& job, const PlanFile& file) {
  std::string text = fmt::format("# {}\n", plan_line(job));
  const auto quoted = [](const std::string& value) { return nlohmann::json(value).dump(); };
  const auto section = [&](const char* name) { text += fmt::format("{}:\n", name); };
  const auto line = [&](const char* key, const auto& value) {
    text += fmt::format("  {}: {}\n", key, value);
  };
  if (!file.model.empty()) {
    section("model");
    line("path", quoted(file.model));
  }
  section("parallel");
  line("data", job.mesh.data);
  line("tensor", job.mesh.tensor);
  line("pipeline", job.mesh.pipeline);
  line("context", job.mesh.context);
  if (job.expert_ranks > 1) {
    line("expert", job.expert_ranks);
  }
  line("sequence_parallel", job.sequence_parallel);
  line("zero_stage", job.zero_stage);
  if (job.zero_stage > 0) {
    line("shard_ranks", job.shard_ranks);
  }
  if (job.context_attention == ContextAttention::kUlysses) {
    line("context_attention", "ulysses");
  }
  if (job.mesh.pipeline > 1) {
    if (job.schedule == schedule::Kind::kFile) {
      line("schedule", quoted(job.listed->path));
    } else {
      line("schedule", schedule::kind_name(job.schedule));
      line("virtual_stages", job.virtual_stages);
    }
    if (job.zero_stage > 1) {
      line("zero_in_pipeline", true);
    }
  }
  if (has_own_split(job)) {
    line("split", fmt::format("\"{}\"", fmt::join(job.split, ",")));
  }
  line("recompute", recompute_name(job.recompute));
  const auto offloaded = [&](const char* key, const std::string& folder) {
    const bool to_files = job.offload_to == OffloadTo::kNvme;
    text += fmt::format("  {}:\n    device: {}\n", key, to_files ? "nvme" : "cpu");
    text += to_files ? fmt::format("    path: {}\n", quoted(folder)) : "";
  };
  if (job.offload != Offload::kNone) {
    offloaded("offload_optimizer", file.optimizer_folder);
  }
  if (job.offload == Offload::kAll) {
    offloaded("offload_param", file.parameter_folder);
  }
  section("training");
  line("per_device_train_batch_size", job.micro_batch);
  line("gradient_accumulation_steps", job.micro_batches());
  if (job.precision != Precision::kFloat32) {
    line(file.half.c_str(), true);
  }
  if (file.float8) {
    section("precision");
    line("fp8", model::name_of(file.float8->scaling));
    line("num_layers_at_start_in_bf16", file.float8->first);
    line("num_layers_at_end_in_bf16", file.float8->last);
  }
  section("data");
  line("sequence_length", job.data_length());
  return text;
}

std::string plan_trace(const Job& job, const Cluster& cluster) {
  const PipelineTimeline pipeline = pipeline_timeline(job, cluster);
  const std::vector<schedule::Closing> after = besides(simulate(job, cluster));
  nlohmann::json events = nlohmann::json::array();
  const auto add = [&](int rank, const std::string& name, double start, double end) {
    events.push_back(
        {{"ph", "X"},
         {"name", name},
         {"cat", "step"},
         {"pid", 0},
         {"tid", rank},
         {"ts", start * 1e6},
         {"dur", (end - start) * 1e6}});
  };
  for (int rank = 0; rank < pipeline.schedule.ranks; ++rank) {
    events.push_back(
        {{"ph", "M"},
         {"name", "thread_name"},
         {"pid", 0},
         {"tid", rank},
         {"args", {{"name", fmt::format("stage {}", rank)}}}});
    for (size_t i = 0; i < pipeline.timeline.spans[rank].size(); ++i) {
      const schedule::Span& span = pipeline.timeline.spans[rank][i];
      const schedule::Action& action = pipeline.schedule.actions[rank][i];
      add(rank, schedule::action_text(action), span.start, span.end);
      events.back()["cat"] = "pipeline";
      events.back()["args"] = {{"stage", action.stage}, {"micro_batch", action.micro_batch}};
    }
    double begin = pipeline.timeline.end;
    for (const schedule::Closing& closing : after) {
      add(rank, closing.name, begin, begin + closing.duration);
      begin += closing.duration;
    }
  }
  return nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

std::string plan_svg(const Job& job, const Cluster& cluster) {
  const PipelineTimeline pipeline = pipeline_timeline(job, cluster);
  return schedule::draw_svg(
      pipeline.schedule, pipeline.timeline, plan_line(job), besides(simulate(job, cluster)));
}

}  // namespace lockstep::plan
