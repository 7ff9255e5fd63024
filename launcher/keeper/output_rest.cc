#include "launcher/keeper/output_rest.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "launcher/output/console.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kPatience = absl::Milliseconds(200);

// One read from a pipe or terminal without a writer; "" = nothing is left.
std::string ReadSome(int fd) {
  std::string bytes(64 << 10, '\0');
  ssize_t n = 0;
  do {
    n = read(fd, bytes.data(), bytes.size());
  } while (n < 0 && errno == EINTR);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

}  // namespace

void OutputRest::Add(uint32_t local_rank, std::vector<Fd> ends) {
  for (Fd& end : ends) ends_.emplace(local_rank, std::move(end));
}

void OutputRest::ClearAllBut(const std::set<uint32_t>& local_ranks) {
  std::erase_if(ends_, [&](const auto& entry) { return !local_ranks.contains(entry.first); });
}

std::vector<pollfd> OutputRest::Polls() const {
  std::vector<pollfd> fds;
  for (const auto& [local_rank, end] : ends_) {
    fds.push_back({.fd = end.get(), .events = POLLIN, .revents = 0});
  }
  return fds;
}

void OutputRest::PourReadable(const std::vector<pollfd>& polled) {
  Pour();
  std::erase_if(ends_, [&](const auto& entry) {
    return std::any_of(polled.begin(), polled.end(), [&](const pollfd& fd) {
      return fd.fd == entry.second.get() && (fd.revents & (POLLHUP | POLLERR)) != 0;
    });
  });
}

void OutputRest::Pour() const {
  ConsoleSink console(STDERR_FILENO);
  for (const auto& [local_rank, end] : ends_) {
    // A stray writer that can't be killed must not make us wait.
    if (!SetNonBlocking(end.get(), true).ok()) continue;
    for (std::string rest = ReadSome(end.get()); !rest.empty(); rest = ReadSome(end.get())) {
      for (absl::string_view left = rest; !left.empty();) {
        left.remove_prefix(console.Write(left));
        if (!left.empty() && !console.WaitWritable(kPatience)) return;
      }
    }
  }
}

}  // namespace ddprun::launcher
