#include "core/device/cpu/bench/onednn_matmul.h"

#include <oneapi/dnnl/dnnl.hpp>

#include "core/device/cpu/kernels.h"

extern "C" void omp_set_num_threads(int);

namespace invar::cpu {
namespace {

dnnl::memory::data_type type_of(int32_t dtype) {
  return dtype == kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

}  // namespace

std::function<void()> make_onednn(const OnednnProduct& p) {
  using dnnl::memory;
  try {
    static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    static dnnl::stream stream(engine);
    using Tag = memory::format_tag;
    const memory::desc a({p.rows, p.inner}, type_of(p.dtype), p.transpose_a ? Tag::ba : Tag::ab);
    const memory::desc b({p.inner, p.cols}, type_of(p.dtype), p.transpose_b ? Tag::ba : Tag::ab);
    const memory::desc any({p.inner, p.cols}, type_of(p.dtype), Tag::any);
    const memory::desc c({p.rows, p.cols}, type_of(p.c_dtype), Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine, a, p.packed_b ? any : b, c);
#else
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, p.packed_b ? any : b, c), engine);
#endif
    auto primitive = std::make_shared<dnnl::matmul>(description);
    const memory a_memory(a, engine, const_cast<void*>(p.a));
    memory b_memory(b, engine, const_cast<void*>(p.b));
    if (p.packed_b && description.weights_desc() != b) {
      memory packed(description.weights_desc(), engine);
      dnnl::reorder(b_memory, packed).execute(stream, b_memory, packed);
      stream.wait();
      b_memory = packed;
    }
    const memory c_memory(c, engine, p.c);
    return [primitive, a_memory, b_memory, c_memory] {
      primitive->execute(stream, {{DNNL_ARG_SRC, a_memory}, {DNNL_ARG_WEIGHTS, b_memory}, {DNNL_ARG_DST, c_memory}});
      stream.wait();
    };
  } catch (const dnnl::error&) {
    return {};
  }
}

void set_onednn_threads(int threads) { omp_set_num_threads(threads); }

}  // namespace invar::cpu
