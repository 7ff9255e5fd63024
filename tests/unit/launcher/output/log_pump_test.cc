#include "launcher/output/log_pump.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/output/console.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class LogPumpTest : public ::testing::Test {
 protected:
  // A stream to "log" and to the console pipe.
  void Make(bool file, bool console) {
    LogStreamOptions options{.prefix = "[0]:"};
    if (file) options.file_path = tree_.path() + "/log";
    if (console) options.console_fd = console_.second.get();
    LogStream::Made made = *LogStream::Create(loop_.get(), options, [this] {
      ++ends_;
      loop_->Stop();
    });
    stream_ = std::move(made.stream);
    worker_ = std::move(made.worker_end);
  }

  void MakeRaw(bool shared) {
    LogStream::Made made = *LogStream::Create(
        loop_.get(), {.console_fd = console_.second.get(), .raw = true, .shared = shared}, [this] {
          ++ends_;
          loop_->Stop();
        });
    stream_ = std::move(made.stream);
    worker_ = std::move(made.worker_end);
  }

  // Runs the loop until the console gets something, which is exactly this: one write.
  void AwaitConsole(const std::string& text) {
    Timer limit(loop_.get(), [this] { loop_->Stop(); });
    limit.Arm(loop_->Now() + absl::Seconds(10));
    const int fd = console_.first.get();
    {
      FdWatch readable(loop_.get(), fd, [this] { loop_->Stop(); });
      loop_->Run();
    }
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    EXPECT_EQ(std::string(buffer, n > 0 ? static_cast<size_t>(n) : 0), text);
  }

  void Say(const std::string& text) { ASSERT_TRUE(WriteAll(worker_.get(), text).ok()); }

  void RunToEnd() {
    worker_.Reset();
    Timer limit(loop_.get(), [this] {
      ADD_FAILURE() << "the stream never ended";
      loop_->Stop();
    });
    limit.Arm(loop_->Now() + absl::Seconds(10));
    if (ends_ == 0) loop_->Run();
    EXPECT_EQ(ends_, 1);
  }

  // All that went to the console.
  std::string ConsoleText() {
    stream_.reset();
    console_.second.Reset();
    std::string text;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(console_.first.get(), buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

  testing::TempTree tree_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  FdPair console_ = *MakePipe();
  std::unique_ptr<LogStream> stream_;
  Fd worker_;
  int ends_ = 0;
};

TEST_F(LogPumpTest, FilesGetEveryByteAndTheConsoleWholeLines) {
  Make(true, true);
  const std::string text("one\n\ntw\0o\r3\n\xff end", 17);
  Say(text);
  RunToEnd();
  EXPECT_EQ(tree_.Read("log"), text);
  EXPECT_EQ(stream_->Tail(), absl::StrCat("one\n\n3\n\xff end\n"));
  EXPECT_EQ(ConsoleText(), std::string("[0]:one\n[0]:\n[0]:tw\0o\r3\n[0]:\xff end\n", 34));
}

TEST_F(LogPumpTest, ALineWaitsForItsRest) {
  Make(false, true);
  Say("begin ");
  stream_.reset();  // what waits is completed when the stream goes
  EXPECT_EQ(ConsoleText(), "");

  console_ = *MakePipe();
  Make(false, true);
  Say("begin ");
  loop_->Post([&] { loop_->Post([&] { loop_->Stop(); }); });
  loop_->Run();
  Say("end\n");
  RunToEnd();
  EXPECT_EQ(ConsoleText(), "[0]:begin end\n");
}

TEST_F(LogPumpTest, FramesOfABarAreShownAsTheyCome) {
  Make(false, true);
  Say("\r 10%\r 20%");
  AwaitConsole("[0]: 20%\n");  // the newest of what has come
  Say("\r 30%\r");
  AwaitConsole("[0]: 30%\n");
  Say("\nnext\n");
  RunToEnd();
  EXPECT_EQ(ConsoleText(), "[0]:next\n");  // no empty line for the bar's newline
}

TEST_F(LogPumpTest, RawPiecesOfALineStayTogetherAndAPromptIsShown) {
  for (const bool shared : {true, false}) {
    console_ = *MakePipe();
    ends_ = 0;
    MakeRaw(shared);
    Say("whole\n10%\rerr ");
    AwaitConsole(shared ? "whole\n10%\r" : "whole\n10%\rerr ");
    Say("2\n");
    AwaitConsole(shared ? "err 2\n" : "2\n");
    Say("(Pdb) ");
    AwaitConsole("(Pdb) ");
    Say("rest");
    RunToEnd();
    EXPECT_EQ(ConsoleText(), "rest");
  }
}

// Two workers flood one console from their terminals, for many times the moment that a line without
// an end waits: each read(2) ends somewhere in a line.
TEST_F(LogPumpTest, LinesOfAFloodFromTerminalsStayWhole) {
  const absl::StatusOr<FdPair> ours = MakePseudoTerminal(-1);
  if (!ours.ok()) GTEST_SKIP() << ours.status();
  constexpr int kLines = 100'000;
  constexpr size_t kAtOnce = 100;
  std::vector<std::unique_ptr<LogStream>> streams;
  std::vector<std::thread> workers;
  for (const char of : {'a', 'b'}) {
    LogStream::Made made = *LogStream::Create(loop_.get(),
                                              {.console_fd = console_.second.get(),
                                               .raw = true,
                                               .shared = true,
                                               .terminal = ours->second.get()},
                                              [this] {
                                                if (++ends_ == 2) loop_->Stop();
                                              });
    streams.push_back(std::move(made.stream));
    workers.emplace_back([of, fd = std::move(made.worker_end)] {
      std::string lines;
      for (int i = 0; i < kLines; ++i) {
        absl::StrAppend(&lines, std::string(static_cast<size_t>(i) * 37 % 180, of), ".\n");
        if (i % kAtOnce != kAtOnce - 1) continue;
        if (!WriteAll(fd.get(), lines).ok()) return;
        lines.clear();
      }
    });
  }
  std::string shown;
  FdWatch reader(loop_.get(), console_.first.get(), [&] {
    char buffer[65536];
    const ssize_t n = read(console_.first.get(), buffer, sizeof(buffer));
    if (n > 0) shown.append(buffer, static_cast<size_t>(n));
  });
  loop_->Run();
  reader.Pause();
  for (std::thread& worker : workers) worker.join();
  streams.clear();
  shown += ConsoleText();
  const std::vector<std::string> lines = absl::StrSplit(shown, '\n');
  EXPECT_EQ(lines.size(), 2 * kLines + 1U);
  for (const std::string& line : lines) {
    const size_t of_one = line.find_first_not_of(line.empty() ? '.' : line[0]);
    ASSERT_TRUE(line.empty() || line == "." || (of_one == line.size() - 1 && line[of_one] == '.'))
        << line;
  }
}

// While the console takes nothing, the worker's pipe isn't read, where the rest may be.
TEST_F(LogPumpTest, ALineWaitsForItsRestWhileTheConsoleIsBusy) {
  ASSERT_TRUE(SetNonBlocking(console_.first.get(), true).ok());
  MakeRaw(true);
  LogStream::Made other = *LogStream::Create(
      loop_.get(), {.console_fd = console_.second.get(), .raw = true, .shared = true}, nullptr);
  const auto run_for = [&](absl::Duration time) {
    Timer until(loop_.get(), [&] { loop_->Stop(); });
    until.Arm(loop_->Now() + time);
    loop_->Run();
  };
  const std::string fill = std::string(200'000, 'f') + "\n";  // more than a pipe holds
  Say(fill);
  run_for(absl::Milliseconds(1));
  Say(fill + "err ");
  run_for(absl::Milliseconds(150));  // more than a line waits for its rest
  Say("2\n");
  ASSERT_TRUE(WriteAll(other.worker_end.get(), "other\n").ok());
  std::string shown;
  FdWatch reader(loop_.get(), console_.first.get(), [&] {
    char buffer[65536];
    const ssize_t n = read(console_.first.get(), buffer, sizeof(buffer));
    if (n > 0) shown.append(buffer, static_cast<size_t>(n));
    if (shown.size() >= 2 * fill.size() + 12) loop_->Stop();
  });
  loop_->Run();
  EXPECT_EQ(shown.substr(0, 2 * fill.size()), fill + fill);
  EXPECT_THAT(shown.substr(2 * fill.size()), ::testing::AnyOf("err 2\nother\n", "other\nerr 2\n"));
}

TEST_F(LogPumpTest, AnEndlessLineIsCutForTheConsoleOnly) {
  Make(true, true);
  const std::string line(800'000, 'y');
  fcntl(worker_.get(), F_SETPIPE_SZ, 1 << 20);
  fcntl(console_.second.get(), F_SETPIPE_SZ, 1 << 20);
  Say(line + "\nnext\n");
  RunToEnd();
  EXPECT_EQ(tree_.Read("log"), line + "\nnext\n");
  const std::string shown = ConsoleText();
  EXPECT_TRUE(absl::EndsWith(shown, "y\n[0]:next\n"));
  EXPECT_EQ(std::count(shown.begin(), shown.end(), 'y'), 800'000);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 3);
}

TEST_F(LogPumpTest, ALineOfExactlyTheLimitIsNotSplit) {
  Make(false, true);
  const std::string line(512 << 10, 'y');
  fcntl(worker_.get(), F_SETPIPE_SZ, 1 << 20);
  fcntl(console_.second.get(), F_SETPIPE_SZ, 1 << 20);
  Say(line + "\n");
  RunToEnd();
  EXPECT_EQ(ConsoleText(), "[0]:" + line + "\n");
}

// A console that nobody reads holds back its worker, and nothing is lost.
TEST_F(LogPumpTest, ASlowConsoleMakesBackPressure) {
  Make(true, true);
  ASSERT_TRUE(SetNonBlocking(worker_.get(), true).ok());
  ASSERT_TRUE(SetNonBlocking(console_.first.get(), true).ok());
  // Write as a worker would, until nothing moves: pipe, stream and console are full.
  std::string sent;
  const std::string line(99, 'l');
  const Instant end = loop_->Now() + absl::Seconds(10);
  bool full = false;
  FdWatch writable(loop_.get(), worker_.get(), FdWatch::Writable{}, [&] {
    const std::string next = absl::StrCat(sent.size(), line, "\n");
    if (write(worker_.get(), next.data(), next.size()) > 0) sent += next;
  });
  Timer idle(loop_.get(), [&] {
    full = true;
    loop_->Stop();
  });
  size_t before = 1;
  while (sent.size() != before && loop_->Now() < end) {
    before = sent.size();
    full = false;
    idle.Arm(loop_->Now() + absl::Milliseconds(20));
    loop_->Run();
  }
  EXPECT_TRUE(full);
  EXPECT_GT(sent.size(), 64U << 10);
  EXPECT_LT(sent.size(), 2U << 20) << "nothing held the worker back";

  writable.Pause();
  std::string shown;
  FdWatch reader(loop_.get(), console_.first.get(), [&] {
    char buffer[8192];
    const ssize_t n = read(console_.first.get(), buffer, sizeof(buffer));
    if (n > 0) shown.append(buffer, static_cast<size_t>(n));
  });
  worker_.Reset();
  if (ends_ == 0) loop_->Run();
  EXPECT_EQ(ends_, 1);
  char buffer[8192];
  for (ssize_t n = 0; (n = read(console_.first.get(), buffer, sizeof(buffer))) > 0;) {
    shown.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_EQ(tree_.Read("log"), sent);
  const auto lines = std::count(sent.begin(), sent.end(), '\n');
  EXPECT_EQ(shown.size(), sent.size() + static_cast<size_t>(lines) * 4);
  reader.Pause();
}

TEST_F(LogPumpTest, DrainTakesWhatIsThereThoughThePipeIsHeldOpen) {
  Make(true, true);
  Say("last words");
  stream_->Drain();
  EXPECT_EQ(stream_->Tail(), "last words\n");
  EXPECT_EQ(ends_, 0);
  EXPECT_EQ(ConsoleText(), "[0]:last words\n");
  loop_.reset();  // finishes what is being written
  EXPECT_EQ(tree_.Read("log"), "last words");
}

TEST_F(LogPumpTest, DrainIsBounded) {
  Make(false, false);
  const int capacity = fcntl(worker_.get(), F_GETPIPE_SZ);
  Say(std::string(static_cast<size_t>(capacity), 'x'));
  stream_->Drain();
  EXPECT_EQ(stream_->Tail().size(), 4097U);
}

// Check 79 of tests/contract.
TEST_F(LogPumpTest, LinesWithAWantedTextAreCopied) {
  std::shared_ptr<FileAppender> copies =
      *FileAppender::Open(loop_.get(), tree_.path() + "/filtered");
  LogStreamOptions options{.prefix = "[0]:", .copy_filters = {"a,b", "c"}, .copy_file = copies};
  LogStream::Made made = *LogStream::Create(loop_.get(), options, [this] {
    ++ends_;
    loop_->Stop();
  });
  stream_ = std::move(made.stream);
  worker_ = std::move(made.worker_end);
  Say("a\nx a,b x\npieces: a");
  loop_->Post([&] { loop_->Post([&] { loop_->Stop(); }); });
  loop_->Run();
  Say(",b\nno\nlast, c");
  RunToEnd();
  EXPECT_EQ(tree_.Read("filtered"), "[0]:x a,b x\n[0]:pieces: a,b\n[0]:last, c\n");
}

TEST_F(LogPumpTest, RawBytesAreShownAsTheyCome) {
  LogStream::Made made =
      *LogStream::Create(loop_.get(), {.console_fd = console_.second.get(), .raw = true}, nullptr);
  stream_ = std::move(made.stream);
  worker_ = std::move(made.worker_end);
  Say("10%\r20%");
  loop_->Post([&] { loop_->Post([&] { loop_->Stop(); }); });
  loop_->Run();
  char shown[16];
  EXPECT_EQ(read(console_.first.get(), shown, sizeof(shown)), 7) << "before the line is whole";
  EXPECT_EQ(std::string(shown, 7), "10%\r20%");
  EXPECT_EQ(stream_->Tail(), "20%\n");
}

TEST_F(LogPumpTest, ATailOutlivesItsStream) {
  const auto tail = std::make_shared<LineTail>();
  LogStream::Made made = *LogStream::Create(loop_.get(), {.tail = tail}, [this] {
    stream_.reset();
    loop_->Stop();
  });
  stream_ = std::move(made.stream);
  worker_ = std::move(made.worker_end);
  Say("last words\n");
  worker_.Reset();
  loop_->Run();
  EXPECT_EQ(tail->Lines(), "last words\n");
}

TEST_F(LogPumpTest, SharesWhatItReads) {
  Make(false, false);
  const Fd rest = *stream_->Share();
  Say("unread");
  stream_.reset();
  char bytes[16];
  EXPECT_EQ(read(rest.get(), bytes, sizeof(bytes)), 6);
}

TEST_F(LogPumpTest, ATerminalIsOneToTheWorkerAndAsLargeAsOurs) {
  const absl::StatusOr<FdPair> ours = MakePseudoTerminal(-1);
  if (!ours.ok()) GTEST_SKIP() << ours.status();
  winsize size{.ws_row = 33, .ws_col = 77, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(ours->second.get(), TIOCSWINSZ, &size), 0);
  LogStream::Made made = *LogStream::Create(
      loop_.get(),
      {.console_fd = console_.second.get(), .raw = true, .terminal = ours->second.get()}, [this] {
        ++ends_;
        loop_->Stop();
      });
  stream_ = std::move(made.stream);
  worker_ = std::move(made.worker_end);
  EXPECT_EQ(isatty(worker_.get()), 1);
  winsize theirs{};
  ASSERT_EQ(ioctl(worker_.get(), TIOCGWINSZ, &theirs), 0);
  EXPECT_EQ(theirs.ws_col, 77);
  size.ws_col = 120;
  ASSERT_EQ(ioctl(ours->second.get(), TIOCSWINSZ, &size), 0);
  stream_->Resize();
  ASSERT_EQ(ioctl(worker_.get(), TIOCGWINSZ, &theirs), 0);
  EXPECT_EQ(theirs.ws_col, 120);
  Say("a\tb\n");
  RunToEnd();
  EXPECT_EQ(ConsoleText(), "a\tb\n") << "no byte is changed";
}

TEST_F(LogPumpTest, AppendsToWhatTheFileHolds) {
  tree_.Write("log", "before\n");
  Make(true, false);
  Say("after\n");
  RunToEnd();
  EXPECT_EQ(tree_.Read("log"), "before\nafter\n");
}

TEST_F(LogPumpTest, AFullDiskCostsTheFileOnly) {
  LogStreamOptions options{.file_path = "/dev/full", .console_fd = console_.second.get()};
  LogStream::Made made = *LogStream::Create(loop_.get(), options, [this] {
    ++ends_;
    loop_->Stop();
  });
  stream_ = std::move(made.stream);
  worker_ = std::move(made.worker_end);
  Say("shown\n");
  RunToEnd();
  EXPECT_EQ(ConsoleText(), "shown\n");
}

TEST_F(LogPumpTest, NamesAFileThatCanNotBeOpened) {
  const auto made = LogStream::Create(loop_.get(), {.file_path = "/no/such/dir/log"}, nullptr);
  EXPECT_TRUE(absl::StrContains(made.status().message(), "'/no/such/dir/log'")) << made.status();
}

TEST_F(LogPumpTest, MayBeDestroyedAtItsEnd) {
  LogStream::Made made = *LogStream::Create(loop_.get(), {}, [this] {
    stream_.reset();
    loop_->Stop();
  });
  stream_ = std::move(made.stream);
  made.worker_end.Reset();
  loop_->Run();
  EXPECT_EQ(stream_, nullptr);
}

}  // namespace
}  // namespace ddprun::launcher
