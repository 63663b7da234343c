"""The leading arguments of constructors: names and order of the original (reference, 4 and 5).

What mithril adds comes after them. Where it differs: `Randn` and `RandInt` call the key `rng_key`,
as states do; the thresholds of robust forms go by keyword; `BatchNorm2D` has `mode` instead of
`inference`.
"""

import inspect
import re

import pytest
from mithril import models

TABLE = """
AUC: n_classes is_label_one_hot pred label
AUCCore: input label
Absolute: input
AbsoluteError: input target
Accuracy: threshold is_binary is_pred_one_hot is_label_one_hot pred label
Activation: formula_key polymorphic_constraint input
Add: left right
Arange: start stop step dtype
ArgMax: axis keepdim input
ArgMin: axis keepdim input
AtLeast1D: input
AvgPool2D: kernel_size stride padding dilation input
BinaryCrossEntropy: input_type pos_weight input target threshold robust
BroadcastTo: shape input
Buffer: input
CartesianDifference: left right
Cast: dtype
Cholesky: input
Clamp: input min_val max_val
Concat: input axis
Convolution1D: kernel_size out_channels stride padding dilation use_bias input weight
Convolution2D: kernel_size out_channels stride padding dilation groups use_bias input weight
Cosine: input
CrossEntropy: input_type weights input target robust threshold categorical
CustomPrimitiveModel: formula_key
DistanceEncoder: base_model input_type input coords norm predicted_coords
DistanceMatrix: left right
Divide: numerator denominator
Eigvalsh: K_term L threshold
Embedding: num_embeddings dim input weight
EncoderDecoder: cell_type max_input_sequence_length max_target_sequence_length teacher_forcing
    indices
EncoderDecoderInference: cell_type max_input_sequence_length max_target_sequence_length
EncoderDistanceMatrix: get_final_distance robust input1 input2
Equal: left right
Exponential: input
Eye: N M dtype
EyeComplement: N M dtype
F1: average n_classes threshold is_binary is_pred_one_hot is_label_one_hot pred label
Flatten: start_dim end_dim input
Floor: input
FloorDivide: numerator denominator
GPRAlpha: label_mu_diff L K_term
GPRLoss: robust labels mu L K_term alpha
GPRVOuter: K K_term L
GaussProcessRegressionCore: s k k_star mu label loss prediction confidence
Gelu: approximate input
Greater: left right
GreaterEqual: left right
GroupNorm: num_groups use_scale use_bias eps input weight bias
HingeLoss: input target
Indexer: index input
IsNan: input
Item: input
KLDivergence: input target threshold
KernelizedSVM: kernel weight bias
L1: input
L2: input
LSTMCell: input w_i w_f w_c w_o w_out bias_f bias_i bias_c bias_o bias_out
LSTMCellBody: input prev_hidden prev_cell w_i w_f w_c w_o bias_f bias_i bias_c bias_o
Layer: activation dimension input weight bias
LayerNorm: use_scale use_bias eps input weight bias
LeakyRelu: slope input
Length: input
Less: left right
LessEqual: left right
Linear: dimension use_bias input weight bias
LinearSVM: input weight bias
LogicalAnd: left right
LogicalNot: input
LogicalOr: left right
LogicalXOr: left right
LogisticRegression: input weight bias
MDS: prediction_dim input_type input coords norm predicted_coords
MDSCore: exact_distances robust distances pred_distances norm
MLP: activations dimensions input_name_templates input
ManyToOne: cell_type max_sequence_length hidden_concat
MatrixMultiply: left right
Max: axis keepdim input
MaxPool1D: kernel_size stride padding dilation input
MaxPool2D: kernel_size stride padding dilation input
Maximum: left right
Mean: axis keepdim input
Metric: threshold is_binary is_pred_one_hot is_label_one_hot pred label
Min: axis keepdim input
Minimum: left right
Multiply: left right
NanToNum: nan posinf neginf input
Negate: input
NormModifier: input
NotEqual: left right
OneToMany: cell_type max_sequence_length teacher_forcing input
OneToManyInference: cell_type max_sequence_length input
Ones: shape dtype
Pad: pad_width input
PaddingConverter1D: kernel_size input
PaddingConverter2D: kernel_size input
PermuteTensor: indices input
PolynomialFeatures: degree input
PolynomialKernel: robust input1 input2 poly_coef degree
PolynomialRegression: degree dimension input weight bias
PositionalEncoding: hidden_dim max_len input
Precision: average n_classes threshold is_binary is_pred_one_hot is_label_one_hot pred label
PrimitiveAvgPool2D: input kernel_size stride padding dilation
PrimitiveConvolution1D: use_bias input weight stride padding dilation bias
PrimitiveConvolution2D: use_bias input weight stride padding dilation groups bias
PrimitiveMaxPool1D: input kernel_size stride padding dilation
PrimitiveMaxPool2D: input kernel_size stride padding dilation
PrimitiveRandInt: shape key low high dtype
PrimitiveRandn: shape key dtype
PrimitiveUnion: n
Prod: axis keepdim input
QuadHingeLoss: input target
QuadraticFormRegularizer: input kernel
QuantileLoss: quantile input target
RBFKernel: input1 input2 l_scale sigma
RNN: cell_type
RNNCell: input w_ih w_hh w_ho bias_h bias_o
RandInt: shape rng_key low high dtype
Recall: average n_classes threshold is_binary is_pred_one_hot is_label_one_hot pred label
Relu: input
Reshape: shape input
ScaledDotProduct: is_causal scale dropout_p use_attn_mask query key value attn_mask
Shape: input
ShiftLeft: input shift
ShiftRight: input shift
SiLU: input
Sigmoid: input
Sign: input
Sine: input
Size: dim input
Slice: start stop step
Softmax: input axis
Softplus: input
Split: split_size axis input
Square: input
SquaredError: input target
Squeeze: input
StableReciprocal: input threshold
StopGradient: input
StrideConverter: kernel_size input
Subtract: left right
Sum: axis keepdim input
SwapAxes: axis1 axis2 input
TSNE: prediction_dim input_type preplexity calculate_p_joint input norm predicted_coords
TSNECore: exact_distances calculate_p_joint perplexity distances pred_distances p_joint
Tanh: input
TensorToList: input
ToList: n
ToTensor: input dtype
ToTuple: n
Transpose: axes input
TransposedDiagonal: input
Trapezoid: x y
TsnePJoint: squared_distances target_perplexity threshold
TupleConverter: input
Unique: input
Variance: axis keepdim correction input
Where: cond input1 input2
ZerosLike: input
"""
ROWS = dict(row.split(":", 1) for row in re.split(r"\n(?! )", TABLE.strip()))
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize("name", ROWS)
def test_order(name):
    wanted = ROWS[name].split()
    parameters = inspect.signature(getattr(models, name)).parameters.values()
    assert [p.name for p in parameters if p.kind is POSITIONAL][: len(wanted)] == wanted


def test_positional_arguments_reach_their_keys():
    assert models.CrossEntropy("probs").factory_args["input_type"] == "probs"
    assert models.PolynomialFeatures(3).factory_args["degree"] == 3
    model = models.Model()
    model |= models.QuantileLoss(0.25)(input="x", target="t", output="y")
    assert model["QuantileLoss.quantile"].metadata.value == 0.25
