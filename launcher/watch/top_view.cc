#include "launcher/watch/top_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"
#include "launcher/watch/gpu_text.h"
#include "launcher/watch/time_text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::v1::JobStatus;
using rendezvous::v1::NodeStatus;
using rendezvous::v1::WorkerStatus;

// Less than this part of the median rate is slow.
constexpr double kSlowRate = 0.9;
// Ranks tell how far they are once a second: behind is who lacks more than that takes, and this.
constexpr double kStepsBehind = 2;
constexpr uint64_t kSilentMs = 2500;

struct Row {
  std::optional<uint32_t> rank;
  std::string node;
  std::string state;  // the worker's phase, or the node's state
  std::optional<uint64_t> step;
  double position = 0;  // step, and what it will have done since it was told
  double behind = 0;    // steps
  double rate = 0;      // steps a second; 0 = unknown
  uint64_t silent_ms = 0;
  GpuSum gpus;
  std::string note;
};

Row RowOf(const NodeStatus& node) {
  Row row;
  row.node = Printable(node.node_id());
  row.state = node.state();
  row.silent_ms = node.silent_ms();
  if (node.step_us() > 0) row.rate = 1e6 / node.step_us();
  row.gpus = GpusOf(node);
  if (node.silent_ms() >= kSilentMs) row.note = "silent";
  return row;
}

std::vector<Row> RowsOf(const JobStatus& job) {
  std::vector<Row> rows;
  for (const NodeStatus& node : job.nodes()) {
    if (node.workers().empty()) rows.push_back(RowOf(node));
    for (int i = 0; i < node.workers_size(); ++i) {
      const WorkerStatus& worker = node.workers(i);
      Row row = RowOf(node);
      row.rank = worker.rank();
      row.gpus = GpusOf(node, static_cast<size_t>(i));
      if (node.state() == "running") row.state = worker.phase();
      if (worker.phase() != "unmarked") {
        row.step = worker.step();
        const double age = static_cast<double>(node.progress_age_ms()) / 1e3;
        const bool moves = worker.phase() == "train";
        row.position = static_cast<double>(worker.step()) + (moves ? age * row.rate : 0);
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

double MedianRate(const std::vector<Row>& rows) {
  std::vector<double> rates;
  for (const Row& row : rows) {
    if (row.rate > 0) rates.push_back(row.rate);
  }
  if (rates.empty()) return 0;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

// Fills in who is behind, and who is slow.
void Compare(double median, std::vector<Row>* rows) {
  double furthest = 0;
  for (const Row& row : *rows) furthest = std::max(furthest, row.position);
  for (Row& row : *rows) {
    if (!row.step) continue;
    row.behind = furthest - row.position;
    const bool lags = row.behind > kStepsBehind && row.behind > row.rate;
    if (!row.note.empty()) continue;
    if (lags) row.note = "behind";
    if (row.rate > 0 && row.rate < kSlowRate * median) row.note = "slow";
  }
}

void Sort(TopOrder order, std::vector<Row>* rows) {
  const auto rank = [](const Row& row) { return row.rank.value_or(UINT32_MAX); };
  std::stable_sort(rows->begin(), rows->end(),
                   [&](const Row& a, const Row& b) { return rank(a) < rank(b); });
  std::stable_sort(rows->begin(), rows->end(), [&](const Row& a, const Row& b) {
    switch (order) {
      case TopOrder::kRank:
        return false;
      case TopOrder::kStep:
        return a.behind > b.behind;
      case TopOrder::kRate:
        return (a.rate > 0 ? a.rate : HUGE_VAL) < (b.rate > 0 ? b.rate : HUGE_VAL);
      case TopOrder::kSilent:
        return a.silent_ms > b.silent_ms;
    }
    return false;
  });
}

std::string RateText(double rate) { return rate > 0 ? absl::StrFormat("%.3g", rate) : "-"; }

// Where there is room, names have more than what 80 columns leave them. GPUs take the place of the
// silence in 80 columns, and some of the names'.
constexpr size_t kPlainColumns = 80;
constexpr size_t kNameColumns = 18;
constexpr size_t kNameColumnsMax = 40;
constexpr size_t kGpuColumns = 17;
constexpr size_t kSilentColumns = 9;

struct TopLayout {
  size_t name = kNameColumns;
  bool silent = true;
  bool gpus = false;
};

TopLayout LayoutOf(size_t columns, bool gpus) {
  TopLayout layout{.gpus = gpus};
  size_t plain = kPlainColumns;
  if (gpus) {
    layout.silent = columns >= kPlainColumns + kGpuColumns;
    plain += kGpuColumns;
    if (!layout.silent) {
      plain -= kSilentColumns;
      layout.name -= kGpuColumns - kSilentColumns;
      plain -= kGpuColumns - kSilentColumns;
    }
  }
  if (columns > plain) layout.name = std::min(layout.name + columns - plain, kNameColumnsMax);
  return layout;
}

// Those of the columns that the layout has.
std::string LineText(const TopLayout& layout, const std::string& common, const std::string& silent,
                     const std::string& percent, const std::string& memory) {
  std::string text = common;
  if (layout.silent) absl::StrAppendFormat(&text, " %8s", silent);
  if (layout.gpus) absl::StrAppendFormat(&text, " %4s %11s", percent, memory);
  return text;
}

std::string TitleText(const TopLayout& layout) {
  const std::string common =
      absl::StrFormat("%5s  %-*s %-11s %9s %6s %7s", "RANK", static_cast<int>(layout.name), "NODE",
                      "PHASE", "STEP", "BEHIND", "STEPS/S");
  return LineText(layout, common, "SILENT", "GPU", "GPU GiB");
}

std::string RowText(const Row& row, const TopLayout& layout) {
  const double behind = std::round(row.behind);
  const std::string common = absl::StrFormat(
      "%5s  %-*s %-11s %9s %6s %7s", row.rank ? absl::StrCat(*row.rank) : "-",
      static_cast<int>(layout.name), row.node.substr(0, layout.name), row.state,
      row.step ? absl::StrCat(*row.step) : "-",
      row.step && behind > 0 ? absl::StrFormat("%.0f", behind) : "-", RateText(row.rate));
  return absl::StrCat(LineText(layout, common, TimeText(row.silent_ms), GpuPercentText(row.gpus),
                               GpuMemoryText(row.gpus)),
                      " ", row.note.empty() && row.gpus.lost > 0 ? "GPU lost" : row.note);
}

std::string JobLine(const JobStatus& job, const std::string& target) {
  std::string text = absl::StrCat("job ", job.run_id(), ": ", PhaseText(job));
  if (job.generation() > 0) {
    absl::StrAppend(&text, ", generation ", job.generation(), ", restarts ", job.restart_count(),
                    " of ", job.max_restarts());
  }
  return absl::StrCat(text, "; ", target);
}

std::string SummaryText(const std::vector<Row>& rows, size_t nodes, double median,
                        const GpuSum& gpus) {
  size_t ranks = 0;
  std::optional<uint64_t> least;
  uint64_t most = 0;
  const Row* last = nullptr;
  for (const Row& row : rows) {
    ranks += row.rank ? 1 : 0;
    if (row.step) least = std::min(least.value_or(UINT64_MAX), *row.step);
    if (row.step) most = std::max(most, *row.step);
    const bool is_slow = row.note == "slow" || row.note == "behind";
    if (is_slow && (last == nullptr || row.behind > last->behind)) last = &row;
  }
  std::string text = absl::StrCat(nodes, nodes == 1 ? " node, " : " nodes, ", ranks,
                                  ranks == 1 ? " rank" : " ranks");
  if (least) absl::StrAppend(&text, "; step ", RangeText(*least, most));
  if (median > 0) absl::StrAppend(&text, "; ", RateText(median), " steps/s");
  if (gpus.count > 0) {
    absl::StrAppend(&text, "; ", gpus.count, gpus.count == 1 ? " GPU " : " GPUs ");
    if (gpus.lost > 0 && gpus.lost < gpus.count) absl::StrAppend(&text, "(", gpus.lost, " lost) ");
    absl::StrAppend(&text, GpuPercentText(gpus));
    if (gpus.lost < gpus.count) absl::StrAppend(&text, ", ", GpuMemoryText(gpus), " GiB");
  }
  if (last != nullptr) absl::StrAppend(&text, "; slowest: rank ", *last->rank, " on ", last->node);
  return text;
}

std::string KeysText(TopOrder order) {
  static constexpr const char* kNames[] = {"rank", "steps behind", "steps/s", "silence"};
  return absl::StrCat("q quit   sorted by ", kNames[static_cast<size_t>(order)],
                      ":  r rank  b behind  s steps/s  t silent");
}

// At most that many characters; one of UTF-8 is one.
std::string Cut(const std::string& line, size_t columns) {
  size_t at = 0;
  for (size_t shown = 0; at < line.size() && shown < columns; ++shown) {
    ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80U) ++at;
  }
  return line.substr(0, at);
}

}  // namespace

std::vector<std::string> TopLines(const JobStatus& job, const std::string& target, TopOrder order,
                                  TopSize size) {
  std::vector<Row> rows = RowsOf(job);
  const double median = MedianRate(rows);
  Compare(median, &rows);
  Sort(order, &rows);
  GpuSum gpus;
  for (const NodeStatus& node : job.nodes()) gpus.Add(GpusOf(node));
  const TopLayout layout = LayoutOf(size.columns, gpus.count > 0);
  std::vector<std::string> lines = {
      JobLine(job, target),
      job.description(),
      job.reason(),
      SummaryText(rows, static_cast<size_t>(job.nodes_size()), median, gpus),
      "",
      TitleText(layout)};
  constexpr size_t kBelow = 2;
  const size_t room = size.rows > lines.size() + kBelow ? size.rows - lines.size() - kBelow : 0;
  const size_t shown = std::min(room, rows.size());
  for (size_t i = 0; i < shown; ++i) lines.push_back(RowText(rows[i], layout));
  lines.push_back(shown < rows.size()
                      ? absl::StrCat("… ", rows.size() - shown, " more: make the terminal larger")
                      : "");
  lines.push_back(KeysText(order));
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) {
    line = Cut(absl::StrReplaceAll(Printable(line), {{"\n", " "}, {"\t", " "}}), size.columns);
  }
  return lines;
}

std::string ScreenText(const std::vector<std::string>& lines, size_t title) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "\n", i == title ? "\x1b[7m" : "", lines[i],
                    i == title ? "\x1b[0m" : "", "\x1b[K");
  }
  return absl::StrCat(text, "\x1b[J");
}

}  // namespace ddprun::launcher
