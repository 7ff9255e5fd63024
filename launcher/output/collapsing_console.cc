#include "launcher/output/collapsing_console.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

CollapsingConsole::CollapsingConsole(EventLoop* loop, int fd, Prefix prefix)
    : loop_(loop),
      prefix_(std::move(prefix)),
      console_(Console::For(loop, fd)),
      timer_(loop, [this] { Flush(); }) {}

CollapsingConsole::~CollapsingConsole() { Write(collapser_.TakeAll()); }

void CollapsingConsole::Begin(uint32_t local_rank) { collapser_.Begin(local_rank); }

void CollapsingConsole::End(uint32_t local_rank) {
  collapser_.End(local_rank);
  Flush();
}

void CollapsingConsole::Add(uint32_t local_rank, absl::string_view line) {
  collapser_.Add(loop_->Now(), local_rank, line);
}

void CollapsingConsole::Flush() {
  Write(collapser_.Take(loop_->Now()));
  timer_.Arm(collapser_.NextDeadline());
}

void CollapsingConsole::Write(const std::vector<LineCollapser::Line>& lines) {
  std::string text;
  for (const LineCollapser::Line& line : lines) {
    absl::StrAppend(&text, prefix_(line.local_ranks), line.text, "\n");
  }
  if (!text.empty()) console_->Write(text);
}

}  // namespace ddprun::launcher
