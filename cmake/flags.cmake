# Compiler and linker flags that hold for everything in csrc/ and tests/cpp/.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_C_STANDARD 99)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# No link-time optimisation: cmake/isa.cmake relies on each object keeping its own instructions.
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_RELEASE "-O2 -DNDEBUG")
  set(CMAKE_${language}_FLAGS_DEBUG "-Og -g1")
endforeach()

# Results are part of the product: a compiler may not fuse or reorder what we wrote.
add_compile_options(-ffp-contract=off -pthread)
add_link_options(-pthread)
add_compile_definitions($<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)

if(MITHRIL_STRICT)
  # Members that have initialisers of their own may be left out of a designated initialiser.
  add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # A loop that could not be vectorised is no mistake; g++ has warnings that clang has not.
  add_compile_options(-Wno-pass-failed -Wno-unknown-warning-option)
endif()
if(MITHRIL_SANITIZE)
  add_compile_options(-fsanitize=${MITHRIL_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MITHRIL_SANITIZE})
endif()
if(MITHRIL_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(MITHRIL_CCACHE ccache)
if(MITHRIL_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${MITHRIL_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MITHRIL_CCACHE})
endif()
