// A thread that outlives main() finds what it used destroyed, and throws.
// RUN: %out
// EXPECT: (?m)^ddprun: worker of rank [01]: std::runtime_error: the cache is gone$
#include <ddprun/context.h>
#include <ddprun/run_worker.h>

#include <stdexcept>
#include <thread>

struct Cache {
  ~Cache() {
    std::thread([] { throw std::runtime_error("the cache is gone"); }).join();
  }
};

absl::Status Train(int /*argc*/, char** /*argv*/) { return ddprun::Context::Create().status(); }

int main(int argc, char** argv) {
  static const Cache cache;
  return ddprun::RunWorker(argc, argv, Train);
}
