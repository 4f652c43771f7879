# Target fmt::fmt-header-only, from Debian's libfmt-dev.
find_package(fmt 9 QUIET)
if(NOT TARGET fmt::fmt-header-only)
  message(FATAL_ERROR "fmt was not found: install Debian's libfmt-dev")
endif()
