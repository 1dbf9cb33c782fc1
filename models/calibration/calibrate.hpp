// int4 matrices that are rounded with a text in view: what a matrix multiplies while the text runs
// through the model decides which errors of its weights matter.
//
// Units are taken in the order of a pass. The text runs through each twice: natively, and in int4 with
// all that lies before it quantised already. A matrix is to give, from the inputs that it will get, what
// the native one gives from the native ones, so it also makes up for errors that came before; o and down,
// which write the residual stream, make up for what that lacks by then.
//
// Tokens count unequally: the first of a window, on which attention rests where there is nothing to
// attend to, for kFirstToken of the others; and for o and down in proportion to the inverse mean square
// of the residual stream, which is normalised before anyone reads it.
//
// Host memory: the model natively and in int4; of the text, two hidden states a token and, for one unit
// at a time, the inputs of its two matrices in f32; of one matrix [n, k], 4 (5 k^2 + 5 n k) bytes and a
// factor of k^2 in double. At k = 12288, down of an 8B model, those come to 5 GB.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/weights/tensor_source.hpp"
#include "models/model_source.hpp"

namespace sluice {

// Token ids, all windows of one length; each is a text of its own.
using CalibrationWindows = std::vector<std::vector<std::int32_t>>;
// The units that are done, of all that will be.
using CalibrationProgress = std::function<void(std::size_t done, std::size_t total)>;

// The model's tensors, with the matrices of its layers in int4 besides; the head's is not, and is
// rounded to nearest by whoever asks for it. `model` must outlive it. The same to the bit on processors
// whose best instruction set is the same, with any number of threads. Throws InputError for a model with
// experts, for one that comes quantised, for ids that it does not have, and for weights that int4 cannot
// store or that give numbers which are not finite.
std::unique_ptr<ITensorSource> calibrate_int4(const ModelSource& model,
                                              const CalibrationWindows& windows,
                                              const CalibrationProgress& progress);

}  // namespace sluice
