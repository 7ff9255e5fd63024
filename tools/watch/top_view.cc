#include "tools/watch/top_view.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/text.h"
#include "tools/watch/status_text.h"

namespace ddprun::launcher {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";

volatile std::sig_atomic_t last_signal = 0;

void NoteSignal(int number) { last_signal = number; }

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

TopColours WantedColours() {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool none = (refused != nullptr && *refused != 0) ||
                    (terminal != nullptr && absl::string_view(terminal) == "dumb");
  return none ? TopColours::kNo : TopColours::kYes;
}

}  // namespace

void Terminal::HoldSignals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  for (const int number : kEndingSignals) {
    sigaddset(&blocked, number);
    sigaction(number, &action, nullptr);
  }
  sigaddset(&blocked, SIGWINCH);
  sigaction(SIGWINCH, &action, nullptr);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
}

absl::StatusOr<Terminal> Terminal::Open() {
  termios before = {};
  if (isatty(STDOUT_FILENO) == 0 || tcgetattr(STDIN_FILENO, &before) != 0) {
    return absl::FailedPreconditionError(
        "ddprun top needs a terminal; for a pipe or a file: ddprun status --watch 1");
  }
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  std::fputs(kEnter, stdout);
  std::fflush(stdout);
  return Terminal(before);
}

Terminal::Terminal(Terminal&& other) noexcept
    : before_(std::exchange(other.before_, std::nullopt)) {}

Terminal::~Terminal() {
  if (!before_.has_value()) return;
  std::fputs(kLeave, stdout);
  std::fflush(stdout);
  tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

TopSize Terminal::Size() const {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {.columns = size.ws_col, .rows = size.ws_row};
}

void Terminal::Draw(const std::vector<TopLine>& lines) const {
  std::fputs(ScreenText(lines, WantedColours()).c_str(), stdout);
  std::fflush(stdout);
}

Terminal::Wake Terminal::Wait(absl::Duration time, char* key) const {
  last_signal = 0;
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const timespec timeout = absl::ToTimespec(time);
  sigset_t none;
  sigemptyset(&none);
  const int ready = ppoll(&input, 1, &timeout, &none);
  if (ready == 0) return Wake::kTime;
  if (ready < 0) return errno == EINTR && last_signal == SIGWINCH ? Wake::kResized : Wake::kEnd;
  return read(STDIN_FILENO, key, 1) == 1 ? Wake::kKey : Wake::kEnd;
}

namespace {

using rendezvous::v1::JobStatus;
using rendezvous::v1::NodeStatus;
using rendezvous::v1::WorkerStatus;

struct Row {
  std::optional<uint32_t> rank;
  std::string node;
  std::string state;  // how it lags, else the worker's phase, else the node's state
  TopTone tone = TopTone::kPlain;
  bool lags = false;  // behind or slow
  std::optional<uint64_t> step;
  uint64_t behind = 0;  // steps
  double rate = 0;      // steps a second; 0 = unknown
  uint64_t silent_ms = 0;
  GpuSum gpus;
};

// Sets the text and style of a row's state, the worst of several. `lag`: of its worker.
void NoteState(const NodeStatus& node, const std::string& phase, const std::string& lag, Row* row) {
  const bool is_silent = node.lag() == "silent";
  const bool holds_up = lag == "holds up";
  row->lags = !lag.empty() || node.lag() == "slow";
  row->state = phase;
  if (row->lags) row->state = lag.empty() ? node.lag() : lag;
  if (is_silent) row->state = node.lag();
  if (row->gpus.lost > 0) row->state = "GPU lost";
  const bool is_bad = row->gpus.lost > 0 || is_silent || holds_up ||
                      node.state() == "unreachable" || node.state() == "quarantined";
  row->tone = is_bad ? TopTone::kBad : row->lags ? TopTone::kWarning : TopTone::kPlain;
}

Row RowOf(const NodeStatus& node) {
  Row row;
  row.node = Printable(node.node_id());
  row.silent_ms = node.silent_ms();
  if (node.step_us() > 0) row.rate = 1e6 / node.step_us();
  row.gpus = GpusOf(node);
  NoteState(node, node.state(), "", &row);
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
      NoteState(node, node.state() == "running" ? worker.phase() : node.state(), worker.lag(),
                &row);
      if (worker.phase() != "unmarked") {
        row.step = worker.step();
        row.behind = worker.behind();
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

// Every layout has ranks, names, states, steps, how far behind and how fast; what else there is
// room for comes in this order, each with its blank in front. Names get what is left.
constexpr size_t kFixedColumns = 43;
constexpr size_t kNameColumns = 11;
constexpr size_t kNameColumnsMax = 40;
constexpr size_t kPercentColumns = 5;
constexpr size_t kMemoryColumns = 12;
constexpr size_t kBarColumns = 9;
constexpr size_t kSilentColumns = 9;

struct TopLayout {
  size_t name = kNameColumns;
  bool percent = false;  // of GPUs that are busy
  bool memory = false;   // of GPUs
  bool bar = false;      // of steps/s
  bool silent = false;
};

TopLayout LayoutOf(size_t columns, bool gpus) {
  TopLayout layout;
  size_t room = columns - std::min(columns, kFixedColumns + kNameColumns);
  const auto take = [&room](size_t wanted) {
    if (wanted > room) return false;
    room -= wanted;
    return true;
  };
  layout.percent = gpus && take(kPercentColumns);
  layout.memory = gpus && take(kMemoryColumns);
  layout.bar = take(kBarColumns);
  layout.silent = take(kSilentColumns);
  layout.name = std::min(kNameColumns + room, kNameColumnsMax);
  return layout;
}

// A bar of eight cells, filled to `part` (0 to 1) in eighths of a cell.
std::string BarText(double part) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  constexpr size_t kCells = kBarColumns - 1;
  const auto eighths = static_cast<size_t>(std::lround(std::clamp(part, 0.0, 1.0) * 8 * kCells));
  std::string text;
  for (size_t i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[eighths % 8];
  const size_t filled = (eighths + 7) / 8;
  return text + std::string(kCells - filled, ' ');
}

// Joins the columns of the layout.
std::string LineText(const TopLayout& layout, const std::string& common, const std::string& bar,
                     const std::string& silent, const std::string& percent,
                     const std::string& memory) {
  std::string text = common;
  if (layout.bar) absl::StrAppend(&text, " ", bar);
  if (layout.silent) absl::StrAppendFormat(&text, " %8s", silent);
  if (layout.percent) absl::StrAppendFormat(&text, " %4s", percent);
  if (layout.memory) absl::StrAppendFormat(&text, " %11s", memory);
  return text;
}

std::string TitleText(const TopLayout& layout) {
  const std::string common =
      absl::StrFormat("%5s  %-*s %-10s %9s %6s %7s", "RANK", static_cast<int>(layout.name), "NODE",
                      "STATE", "STEP", "BEHIND", "STEPS/S");
  return LineText(layout, common, std::string(kBarColumns - 1, ' '), "SILENT", "GPU", "GPU GiB");
}

std::string RowText(const Row& row, const TopLayout& layout, double fastest) {
  const std::string common = absl::StrFormat(
      "%5s  %-*s %-10s %9s %6s %7s", row.rank ? absl::StrCat(*row.rank) : "-",
      static_cast<int>(layout.name), row.node.substr(0, layout.name), row.state,
      row.step ? absl::StrCat(*row.step) : "-",
      row.step && row.behind > 0 ? absl::StrCat(row.behind) : "-", RateText(row.rate));
  return LineText(layout, common, BarText(fastest > 0 ? row.rate / fastest : 0),
                  TimeText(row.silent_ms), GpuPercentText(row.gpus), GpuMemoryText(row.gpus));
}

std::string JobLine(const JobStatus& job, const std::string& target, size_t columns) {
  const std::string head = absl::StrCat("job ", job.run_id(), ": ", PhaseText(job));
  if (job.generation() == 0) return absl::StrCat(head, "; ", target);
  const std::string tail = absl::StrCat(job.generation(), ", ", RestartsText(job));
  const std::string text = absl::StrCat(head, ", generation ", tail);
  if (text.size() > columns) return absl::StrCat(head, ", gen ", tail);
  return absl::StrCat(text, "; ", target);
}

std::string SummaryText(const std::vector<Row>& rows, size_t nodes, double median,
                        const GpuSum& gpus) {
  size_t ranks = 0;
  std::optional<uint64_t> least;
  uint64_t most = 0;
  for (const Row& row : rows) {
    ranks += row.rank ? 1 : 0;
    if (row.step) least = std::min(least.value_or(UINT64_MAX), *row.step);
    if (row.step) most = std::max(most, *row.step);
  }
  std::string text = absl::StrCat(CountText(nodes, "node"), ", ", CountText(ranks, "rank"));
  if (least) absl::StrAppend(&text, "; step ", RangeText(*least, most));
  if (median > 0) absl::StrAppend(&text, "; ", RateText(median), " steps/s");
  if (gpus.count > 0) {
    absl::StrAppend(&text, "; ", CountText(gpus.count, "GPU"), " ");
    if (gpus.lost > 0 && gpus.lost < gpus.count) absl::StrAppend(&text, "(", gpus.lost, " lost) ");
    absl::StrAppend(&text, GpuPercentText(gpus));
    if (gpus.lost < gpus.count) absl::StrAppend(&text, ", ", GpuMemoryText(gpus), " GiB");
  }
  return text;
}

// "slowest: rank 3 on host1, 20 steps behind; 4 more lag"; "" = none is behind or slow.
std::string SlowestText(const std::vector<Row>& rows) {
  const Row* last = nullptr;
  size_t others = 0;
  for (const Row& row : rows) {
    if (!row.lags || !row.rank) continue;
    others += last == nullptr ? 0 : 1;
    const bool is_worse = last == nullptr || row.behind > last->behind ||
                          (row.behind == last->behind && row.rate < last->rate);
    if (is_worse) last = &row;
  }
  if (last == nullptr) return "";
  std::string text = absl::StrCat("slowest: rank ", *last->rank, " on ", last->node);
  if (last->behind > 0) {
    absl::StrAppend(&text, ", ", CountText(last->behind, "step"), " behind");
  }
  if (others > 0) absl::StrAppend(&text, "; ", others, others == 1 ? " more lags" : " more lag");
  return text;
}

// "…  r [rank]  b behind …": the brackets are around what the rows are sorted by.
std::string KeysText(TopOrder order) {
  static constexpr std::pair<const char*, const char*> kKeys[] = {
      {"r", "rank"}, {"b", "behind"}, {"s", "steps/s"}, {"t", "silent"}};
  std::string text = "q quit   sort by:";
  for (size_t i = 0; i < std::size(kKeys); ++i) {
    const bool is_chosen = i == static_cast<size_t>(order);
    absl::StrAppend(&text, "  ", kKeys[i].first, " ", is_chosen ? "[" : "", kKeys[i].second,
                    is_chosen ? "]" : "");
  }
  return text;
}

// Cuts a line to `columns` characters of UTF-8.
std::string Cut(const std::string& line, size_t columns) {
  size_t at = 0;
  for (size_t shown = 0; at < line.size() && shown < columns; ++shown) {
    ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80U) ++at;
  }
  return line.substr(0, at);
}

// "" = as everything else.
const char* StyleOf(TopTone tone, TopColours colours) {
  const bool coloured = colours == TopColours::kYes;
  switch (tone) {
    case TopTone::kPlain:
      return "";
    case TopTone::kTitle:
      return "\x1b[7m";
    case TopTone::kHeading:
      return "\x1b[1m";
    case TopTone::kFaint:
      return coloured ? "\x1b[90m" : "";
    case TopTone::kWarning:
      return coloured ? "\x1b[33m" : "\x1b[1m";
    case TopTone::kBad:
      return coloured ? "\x1b[1;31m" : "\x1b[1m";
  }
  return "";
}

// A job's phase as its first line shows it.
TopTone ToneOf(const JobStatus& job) {
  return job.phase() == "running" ? TopTone::kHeading : TopTone::kWarning;
}

}  // namespace

std::vector<TopLine> TopLines(const JobStatus& job, const std::string& target, TopOrder order,
                              TopSize size) {
  std::vector<Row> rows = RowsOf(job);
  Sort(order, &rows);
  GpuSum gpus;
  for (const NodeStatus& node : job.nodes()) gpus.Add(GpusOf(node));
  double fastest = 0;
  for (const Row& row : rows) fastest = std::max(fastest, row.rate);
  const TopLayout layout = LayoutOf(size.columns, gpus.count > 0);
  std::vector<TopLine> lines = {
      {JobLine(job, target, size.columns), ToneOf(job)},
      {job.description(), TopTone::kFaint},
      {job.reason()},
      {SummaryText(rows, static_cast<size_t>(job.nodes_size()), MedianRate(rows), gpus)},
      {SlowestText(rows), TopTone::kWarning},
      {TitleText(layout), TopTone::kTitle}};
  constexpr size_t kBelow = 2;
  const size_t room = size.rows > lines.size() + kBelow ? size.rows - lines.size() - kBelow : 0;
  const size_t shown = std::min(room, rows.size());
  for (size_t i = 0; i < shown; ++i) {
    lines.push_back({RowText(rows[i], layout, fastest), rows[i].tone});
  }
  lines.push_back({shown < rows.size()
                       ? absl::StrCat("… ", rows.size() - shown, " more: make the terminal larger")
                       : ""});
  lines.push_back({KeysText(order), TopTone::kFaint});
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (TopLine& line : lines) {
    line.text =
        Cut(absl::StrReplaceAll(Printable(line.text), {{"\n", " "}, {"\t", " "}}), size.columns);
  }
  return lines;
}

std::string ScreenText(const std::vector<TopLine>& lines, TopColours colours) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* style = StyleOf(lines[i].tone, colours);
    absl::StrAppend(&text, i == 0 ? "" : "\n", style, lines[i].text, *style == 0 ? "" : "\x1b[0m",
                    "\x1b[K");
  }
  return absl::StrCat(text, "\x1b[J");
}

}  // namespace ddprun::launcher
