// AddressSanitizer beside a library of Abseil's that is compiled without it.

// Part of AddressSanitizer's interface (sanitizer/asan_interface.h).
extern "C" const char* __asan_default_options() { return "allow_user_poisoning=0"; }
