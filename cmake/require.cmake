# What must be on the machine. MITHRIL_MISSING collects what is not, each with the line that
# installs it; CMakeLists.txt stops when it is not empty.
include(CheckIncludeFileCXX)
set(MITHRIL_MISSING "")

function(mithril_require_header header package)
  string(MAKE_C_IDENTIFIER "MITHRIL_HAS_${header}" found)
  set(CMAKE_REQUIRED_QUIET ON)
  check_include_file_cxx(${header} ${found})
  if(NOT ${found})
    unset(${found} CACHE)  # looked for again once it is installed
    string(APPEND MITHRIL_MISSING "\n  the header <${header}>: apt-get install ${package}")
    set(MITHRIL_MISSING "${MITHRIL_MISSING}" PARENT_SCOPE)
  endif()
endfunction()

function(mithril_require_python module requirement)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u, sys
sys.exit(u.find_spec('${module}') is None)" RESULT_VARIABLE absent ERROR_QUIET)
  if(absent)
    string(APPEND MITHRIL_MISSING
           "\n  the Python package ${module}: ${Python_EXECUTABLE} -m pip install '${requirement}'")
    set(MITHRIL_MISSING "${MITHRIL_MISSING}" PARENT_SCOPE)
  endif()
endfunction()

find_package(Threads REQUIRED)
find_package(Python 3.11 COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
# The headers of Eigen come as a Python package, in the version that pyproject.toml names: builds
# need no system package for them and have the same bits.
execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.metadata as m
print(next(f for f in m.files('cmeel-eigen') if f.match('Eigen/Core')).locate().parent.parent)"
                OUTPUT_VARIABLE MITHRIL_EIGEN OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT MITHRIL_EIGEN)
  string(APPEND MITHRIL_MISSING "\n  the headers of Eigen: ${Python_EXECUTABLE} -m pip install cmeel-eigen==3.4.1")
endif()
if(MITHRIL_TESTS)
  mithril_require_header(gtest/gtest.h libgtest-dev)
  mithril_require_header(gmock/gmock.h libgmock-dev)
  find_package(GTest QUIET)
endif()
if(MITHRIL_PYTHON)
  if(NOT Python_Development.Module_FOUND)
    string(APPEND MITHRIL_MISSING "\n  the header <Python.h>: apt-get install python3-dev")
  endif()
  mithril_require_python(pybind11 "pybind11>=3")
  mithril_require_python(scipy_openblas32 scipy-openblas32)
endif()
