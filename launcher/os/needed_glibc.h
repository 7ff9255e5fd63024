#ifndef DDPRUN_LAUNCHER_OS_NEEDED_GLIBC_H_
#define DDPRUN_LAUNCHER_OS_NEEDED_GLIBC_H_

#include <string>

namespace ddprun::launcher {

// The oldest glibc that can run this program, "2.28": the newest version of glibc's symbols that
// the program's file asks for; "" = it asks for none, or can't be read. Source: the ELF section
// .gnu.version_r, see elf(5) and "Symbol Versioning" of the LSB. Threads: any.
std::string NeededGlibc();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_NEEDED_GLIBC_H_
