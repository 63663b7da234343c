// `evaluate` and `step` of models that the engine runs, as calls without a Python frame.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "bindings/python.h"

namespace mithril::bindings {

/// A program over NumPy arrays, in the order of its inputs and outputs.
class ArrayProgram {
 public:
  struct Input {
    PyObject* array;     // the caller holds it; null: no array but the number, or a host value
    const void* number;  // of the input's type
  };

  virtual ~ArrayProgram() = default;
  virtual size_t output_count() const = 0;
  /// Puts new references to fresh arrays into `outputs`, which are null before; throws what the run
  /// raises. False where an input is no array that can be read as it lies: nothing is done then.
  virtual bool try_run(std::span<const Input> inputs, std::span<PyObject*> outputs) = 0;
};

/// As many elements as a call has inputs or outputs: on the stack, unless there are very many.
template <class T>
class Row {
 public:
  Row(size_t count, T value) {
    T* data = few_;
    if (count > kFew) {
      many_.resize(count);
      data = many_.data();
    }
    all_ = {data, count};
    std::fill_n(data, count, value);
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  std::span<T> get() { return all_; }
  T& operator[](size_t i) { return all_[i]; }

 private:
  static constexpr size_t kFew = 128;
  T few_[kFew];  // only those that count are set
  std::vector<T> many_;
  std::span<T> all_;
};

/// References that are let go in the end.
class Held {
 public:
  explicit Held(size_t count) : objects_(count, nullptr) {}
  ~Held() {
    for (PyObject* object : objects_.get()) Py_XDECREF(object);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  std::span<PyObject*> get() { return objects_.get(); }
  PyObject*& operator[](size_t i) { return objects_[i]; }

 private:
  Row<PyObject*> objects_;
};

/// `ArrayProgram`, and the functions that make native calls (_core.pyi).
void bind_native_calls(py::module_& module);

}  // namespace mithril::bindings
