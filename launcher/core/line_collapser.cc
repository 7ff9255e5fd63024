#include "launcher/core/line_collapser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

void LineCollapser::Begin(uint32_t local_rank) { last_said_[local_rank] = 0; }

void LineCollapser::End(uint32_t local_rank) { last_said_.erase(local_rank); }

void LineCollapser::Add(Instant now, uint32_t local_rank, absl::string_view text) {
  uint64_t& last = last_said_[local_rank];
  if (const auto found = numbers_.find(text); found != numbers_.end()) {
    // Only what comes after the worker's last line: its order stays.
    const std::deque<uint64_t>& numbers = found->second;
    const auto like = std::upper_bound(numbers.begin(), numbers.end(), last);
    if (like != numbers.end()) {
      last = *like;
      waiting_[last - first_number_].local_ranks.push_back(local_rank);
      return;
    }
  }
  last = first_number_ + waiting_.size();
  numbers_[text].push_back(last);
  waiting_bytes_ += text.size();
  waiting_.push_back(
      {.text = std::string(text), .local_ranks = {local_rank}, .due = now + bounds_.hold});
}

bool LineCollapser::AllSaid(const Waiting& line) const {
  return std::all_of(last_said_.begin(), last_said_.end(), [&](const auto& stream) {
    return std::find(line.local_ranks.begin(), line.local_ranks.end(), stream.first) !=
           line.local_ranks.end();
  });
}

LineCollapser::Line LineCollapser::TakeFront() {
  Waiting& front = waiting_.front();
  waiting_bytes_ -= front.text.size();
  const auto numbers = numbers_.find(front.text);
  numbers->second.pop_front();  // the front has the lowest number of all
  if (numbers->second.empty()) numbers_.erase(numbers);
  std::sort(front.local_ranks.begin(), front.local_ranks.end());
  Line line{.local_ranks = std::move(front.local_ranks), .text = std::move(front.text)};
  waiting_.pop_front();
  ++first_number_;
  return line;
}

std::vector<LineCollapser::Line> LineCollapser::Take(Instant now) {
  std::vector<Line> lines;
  while (!waiting_.empty() && (now >= waiting_.front().due || waiting_bytes_ > bounds_.bytes_max ||
                               AllSaid(waiting_.front()))) {
    lines.push_back(TakeFront());
  }
  return lines;
}

std::vector<LineCollapser::Line> LineCollapser::TakeAll() {
  std::vector<Line> lines;
  while (!waiting_.empty()) lines.push_back(TakeFront());
  return lines;
}

Instant LineCollapser::NextDeadline() const {
  return waiting_.empty() ? Instant::Infinite() : waiting_.front().due;
}

std::string RankRanges(const std::vector<uint32_t>& ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", ranks[first]);
    if (last > first) absl::StrAppend(&text, "-", ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace ddprun::launcher
