#ifndef DDPRUN_LAUNCHER_OUTPUT_COLLAPSING_CONSOLE_H_
#define DDPRUN_LAUNCHER_OUTPUT_COLLAPSING_CONSOLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "launcher/core/line_collapser.h"
#include "launcher/output/console.h"

namespace ddprun::launcher {

// One of the two output streams of all workers of a generation, on a console that shows lines which
// several of them say alike once (--collapse_output).
//
// Memory: what a LineCollapser holds, and what the console has not taken: its streams pause while
// that is something.
// Threads: the loop's.
class CollapsingConsole {
 public:
  // `prefix` gives what a line of these local ranks (ascending) begins with.
  using Prefix = std::function<std::string(const std::vector<uint32_t>& local_ranks)>;
  CollapsingConsole(EventLoop* loop, int fd, Prefix prefix);
  // Writes what still waits.
  ~CollapsingConsole();
  CollapsingConsole(const CollapsingConsole&) = delete;
  CollapsingConsole& operator=(const CollapsingConsole&) = delete;

  void Begin(uint32_t local_rank);
  // What waits is written now or, as far as it waits for other workers, after its time.
  void End(uint32_t local_rank);
  // One line without its newline.
  void Add(uint32_t local_rank, absl::string_view line);
  // To be called after some lines: writes what is due.
  void Flush();

 private:
  void Write(const std::vector<LineCollapser::Line>& lines);

  EventLoop* loop_;
  const Prefix prefix_;
  std::shared_ptr<Console> console_;
  LineCollapser collapser_{LineCollapser::Bounds()};
  Timer timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_COLLAPSING_CONSOLE_H_
