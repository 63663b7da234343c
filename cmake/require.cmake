# What must be on the machine, each named with the line that installs it.
include(CheckIncludeFileCXX)

# Stops the build with one sentence when `header` is not found.
function(mithril_require_header header package)
  string(MAKE_C_IDENTIFIER "MITHRIL_HAS_${header}" found)
  set(CMAKE_REQUIRED_QUIET ON)
  check_include_file_cxx(${header} ${found})
  if(NOT ${found})
    unset(${found} CACHE)  # looked for again once it is installed
    message(FATAL_ERROR "mithril needs the header <${header}>: apt-get install ${package}")
  endif()
endfunction()

mithril_require_header(fmt/format.h libfmt-dev)
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
if(MITHRIL_TESTS)
  mithril_require_header(gtest/gtest.h libgtest-dev)
  mithril_require_header(gmock/gmock.h libgmock-dev)
  find_package(GTest REQUIRED)
endif()
