#include "launcher/plan/plan_parts.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr char kNoFiles[] = "/dev/null";

absl::Status CheckLogDirectory(const Argument& log_dir, const Host& host) {
  if (log_dir.text.empty() || log_dir.text == kNoFiles) return absl::OkStatus();
  const Host::PathKind kind = host.KindOf(log_dir.text);
  if (kind == Host::PathKind::kFile || kind == Host::PathKind::kOther) {
    return BadValue(log_dir, "is not a directory; give one, or a path to make one at");
  }
  return absl::OkStatus();
}

absl::Status PlanSinks(const LaunchArguments& arguments, uint32_t worker_count,
                       OutputPlan* output) {
  DDPRUN_ASSIGN_OR_RETURN(StreamChoice redirects, ParseStreams(arguments.redirects));
  DDPRUN_ASSIGN_OR_RETURN(StreamChoice tee, ParseStreams(arguments.tee));
  // torchrun's: without files both options mean nothing.
  if (output->log_dir == kNoFiles) redirects = tee = StreamChoice();
  const auto sink_of = [&](uint32_t rank, uint32_t bit) {
    if ((tee.Of(rank) & bit) != 0) return StreamSink::kTee;
    if ((redirects.Of(rank) & bit) != 0) return StreamSink::kFile;
    return arguments.prefix_output || arguments.collapse_output ? StreamSink::kPrefixed
                                                                : StreamSink::kInherit;
  };
  for (uint32_t rank = 0; rank < worker_count; ++rank) {
    if (const StreamSink sink = sink_of(rank, 1); sink != StreamSink::kInherit) {
      output->stdout_sinks[rank] = sink;
    }
    if (const StreamSink sink = sink_of(rank, 2); sink != StreamSink::kInherit) {
      output->stderr_sinks[rank] = sink;
    }
  }
  return absl::OkStatus();
}

// torchrun takes every whole number here, and shows nothing for one that is no worker's.
absl::StatusOr<std::set<uint32_t>> ReadFilter(const Argument& filter) {
  std::set<uint32_t> shown;
  std::vector<absl::string_view> ranks;
  for (const absl::string_view item : absl::StrSplit(filter.text, ',')) {
    const int64_t rank = ReadInteger(item).value_or(0);
    const bool is_no_workers = rank < 0 || rank >= int64_t{rendezvous::kWorkersPerNodeMax};
    if (!is_no_workers) ranks.push_back(item);
    if (is_no_workers) shown.insert(rendezvous::kWorkersPerNodeMax);
  }
  if (ranks.empty()) return shown;
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<uint32_t> read,
                          ParseRanks({.text = absl::StrJoin(ranks, ","), .source = filter.source}));
  shown.insert(read.begin(), read.end());
  return shown;
}

absl::Status PlanFilters(const LaunchArguments& arguments, uint32_t worker_count,
                         OutputPlan* output, std::vector<std::string>* warnings) {
  const Argument& filter = arguments.local_ranks_filter;
  if (filter.filled()) {
    DDPRUN_ASSIGN_OR_RETURN(output->local_ranks_filter, ReadFilter(filter));
    if (*output->local_ranks_filter.begin() >= worker_count) {
      warnings->push_back(absl::StrCat(filter.source, " ", filter.text,
                                       " names no worker of this node, so none is shown"));
    }
  }
  if (arguments.duplicate_stdout_filters.given()) {
    output->duplicate_stdout_filters = SplitTexts(arguments.duplicate_stdout_filters.text);
  }
  if (arguments.duplicate_stderr_filters.given()) {
    output->duplicate_stderr_filters = SplitTexts(arguments.duplicate_stderr_filters.text);
  }
  if (output->log_dir == kNoFiles) {
    for (const Argument* duplicates :
         {&arguments.duplicate_stdout_filters, &arguments.duplicate_stderr_filters}) {
      if (!duplicates->given()) continue;
      warnings->push_back(absl::StrCat(
          duplicates->source, " is ignored: there are no files with --log_dir ", kNoFiles));
    }
    output->duplicate_stdout_filters.clear();
    output->duplicate_stderr_filters.clear();
  }
  return absl::OkStatus();
}

absl::Status PlanEvents(const LaunchArguments& arguments, LaunchPlan* plan) {
  const Argument& handler = arguments.event_log_handler;
  if (handler.text != "null" && handler.text != "console") {
    return BadValue(handler, "is no handler; give null or console");
  }
  plan->events_on_console = handler.text == "console";
  if (arguments.logs_specs.given() && arguments.logs_specs.text != "default") {
    return BadValue(arguments.logs_specs,
                    "is a Python class, which ddprun can't load; leave it out, and use --log_dir, "
                    "--redirects and --tee");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PlanOutput(const LaunchArguments& arguments, const Host& host, LaunchPlan* plan,
                        std::vector<std::string>* warnings) {
  OutputPlan& output = plan->output;
  output.log_dir = arguments.log_dir.text;
  DDPRUN_RETURN_IF_ERROR(CheckLogDirectory(arguments.log_dir, host));
  DDPRUN_RETURN_IF_ERROR(PlanSinks(arguments, plan->worker_count, &output));
  DDPRUN_RETURN_IF_ERROR(PlanFilters(arguments, plan->worker_count, &output, warnings));
  if (arguments.prefix_template.filled()) output.prefix_template = arguments.prefix_template.text;
  output.collapse = arguments.collapse_output;
  plan->event_log = arguments.event_log.text;
  DDPRUN_ASSIGN_OR_RETURN(plan->status_page, ParseStatusPage(arguments.status_page));
  plan->report_file = arguments.report_file.text;
  if (!plan->report_file.empty() && host.KindOf(plan->report_file) == Host::PathKind::kDirectory) {
    return BadValue(arguments.report_file, "is a directory; give the path of a file");
  }
  return PlanEvents(arguments, plan);
}

}  // namespace ddprun::launcher
