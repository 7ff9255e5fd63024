#ifndef DDPRUN_LAUNCHER_OUTPUT_LOG_PUMP_H_
#define DDPRUN_LAUNCHER_OUTPUT_LOG_PUMP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/output/console.h"
#include "launcher/output/file_appender.h"

namespace ddprun::launcher {

// The last lines of a stream: 20 at most, out of its last 4 KiB.
class LineTail {
 public:
  void Add(absl::string_view bytes);
  // Oldest first, each with its newline. A line with progress frames ("10%\r20%\r") is cut to its
  // last frame; a line that began more than 4 KiB ago is left out unless it is the only one.
  std::string Lines() const;

 private:
  static constexpr size_t kBytesMax = 4096;
  static constexpr size_t kLinesMax = 20;

  std::string bytes_;  // the end of the stream, at most 2 * kBytesMax
  bool cut_ = false;   // something was dropped before bytes_
};

struct LogStreamOptions {
  std::string file_path;  // "" = no file; else appended to, losslessly
  int console_fd = -1;    // -1 = no console; else whole lines with `prefix`
  std::string prefix;     // "[default0]:"
  // Takes the console's lines, to merge them with equal lines of other workers; null = they go
  // straight to the console. `local_rank` is the worker's.
  std::shared_ptr<CollapsingConsole> collapse;
  uint32_t local_rank = 0;
  // Lines that contain one of these texts go, with the prefix, to this file, too; null = none.
  std::vector<std::string> copy_filters;
  std::shared_ptr<FileAppender> copy_file;
  // The console gets every byte without a prefix, as if the worker had it.
  bool raw = false;
  // Other streams write to the same console, so raw bytes without a line end wait for their rest
  // for a moment. That keeps lines of others from coming between the pieces of a line.
  bool shared = false;
  // The terminal that a pseudo-terminal for the worker is made like (MakePseudoTerminal()); -1 =
  // the worker gets a pipe.
  int terminal = -1;
  // Keeps the last lines even after the stream is gone; null = the stream keeps them.
  std::shared_ptr<LineTail> tail;
};

// Moves one output stream of one worker from a pipe (or terminal) to its file and to the console.
// Files get every byte as it was written. The console gets whole lines: '\r' frames are kept inside
// their line, a chunk without a newline waits for the rest (up to 512 KiB), and the end of the
// stream completes the last line. A progress bar, which is '\r' frames without a newline, is shown
// frame by frame, each as a line, as it comes; at most every 100 ms. A slow console or disk holds
// back this worker only (back-pressure through the pipe). Keeps the last 20 lines (4 KiB at most)
// for the failure report.
//
// Memory: the pipe (256 KiB, less where the system gives less), and at most 256 KiB for the console
// (before its prefixes), 512 KiB of a line without an end, and 1.25 MiB for each file that a slow
// disk has not taken. Threads: the loop's.
class LogStream {
 public:
  // Makes a stream and the write end for the worker. `on_end` is called once when every holder of
  // the write end has closed it and everything was written out. Errors: of open(2) with the path,
  // of pipe2(2), of MakePseudoTerminal().
  struct Made {
    std::unique_ptr<LogStream> stream;
    Fd worker_end;
  };
  static absl::StatusOr<Made> Create(EventLoop* loop, LogStreamOptions options,
                                     std::function<void()> on_end);
  virtual ~LogStream() = default;

  // Reads what is in the pipe right now and writes it out, without waiting for the end: called when
  // the worker is gone but a stray descendant may hold the pipe.
  virtual void Drain() = 0;
  // The last lines seen, oldest first, each with its newline.
  virtual std::string Tail() const = 0;
  // The terminal may have another size: copies it to the worker's.
  virtual void Resize() = 0;
  // A duplicate of the read end, for a process that drains it after we have died. Errors: of
  // fcntl(2).
  virtual absl::StatusOr<Fd> Share() const = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_LOG_PUMP_H_
