"""The classes of the original, as reference 4 and 5 give them, row by row: the constructor's
arguments | the order of `connect` | inputs in key order | outputs | canonical inputs | canonical
outputs. "-" is nothing, or what the reference does not say (bases, what could not be built).
"""

import re

TABLE = """
CustomPrimitiveModel(formula_key, **kwargs) | - | - | - | - | -
SquaredError(input=TBD, target=TBD) | input target output | input target | output | input | output
AbsoluteError(input=TBD, target=TBD) | input target output | input target | output | input |
    output
HingeLoss(input=TBD, target=TBD) | input target output | input target | output | input | output
QuadHingeLoss(input=TBD, target=TBD) | input target output | input target | output | input |
    output
QuantileLoss(quantile=0.5, input=TBD, target=TBD) | input target quantile output | input target
    quantile | output | input | output
CrossEntropy(input_type='logits', weights='', input=TBD, target=TBD, robust=False,
    threshold=MIN_POSITIVE_NORMAL, categorical=True) | input target weights categorical threshold
    robust output | input target weights categorical threshold robust | output | input | output
KLDivergence(input=TBD, target=TBD, threshold=MIN_POSITIVE_NORMAL) | input target threshold output
    | input target threshold | output | input | output
BinaryCrossEntropy(input_type='logits', pos_weight=1.0, input=TBD, target=TBD,
    threshold=MIN_POSITIVE_NORMAL, robust=False) | input target pos_weight threshold robust output
    | input target pos_weight threshold robust | output | input | output
Log(robust=False, input=TBD, *, threshold=MIN_POSITIVE_NORMAL) | input output threshold | input |
    output | input | output
StableReciprocal(input=TBD, threshold=STABLE_RECIPROCAL_THRESHOLD) | input threshold output |
    input threshold | output | input | output
Sign(input=TBD) | input output | input | output | input | output
Square(input=TBD) | input output | input | output | input | output
Activation(formula_key, polymorphic_constraint=False, input=TBD, **kwargs) | input output | input
    | output | input | output
Relu(input=TBD) | input output | input | output | input | output
Gelu(approximate=False, input=TBD) | input approximate output | input approximate | output | input
    | output
Sigmoid(input=TBD) | input output | input | output | input | output
Softmax(input=TBD, axis=-1) | input axis output | input axis | output | input | output
Softplus(input=TBD) | input output | input | output | input | output
Tanh(input=TBD) | input output | input | output | input | output
LeakyRelu(slope=0.01, input=TBD) | input slope output | input slope | output | input | output
StopGradient(input=TBD) | input output | input | output | input | output
CartesianDifference(left=TBD, right=TBD) | left right output | left right | output | left | output
Concat(input=TBD, axis=0) | input axis output | input axis | output | input | output
PrimitiveUnion(n=1, **kwargs) | - | input1 input2 | output | input1 | output
PermuteTensor(indices=TBD, input=TBD) | input indices output | input indices | output | input |
    output
PrimitiveConvolution1D(use_bias=True, input=TBD, weight=TBD, stride=TBD, padding=TBD,
    dilation=TBD, *, bias=TBD) | input weight stride padding dilation output bias | input weight
    bias stride padding dilation | output | input | output
PrimitiveConvolution2D(use_bias=True, input=TBD, weight=TBD, stride=TBD, padding=TBD,
    dilation=TBD, groups=TBD, *, bias=TBD) | input weight stride padding dilation groups output
    bias | input weight bias stride padding dilation groups | output | input | output
Flatten(start_dim=0, end_dim=-1, input=TBD) | input start_dim end_dim output | input start_dim
    end_dim | output | input | output
PrimitiveMaxPool1D(input=TBD, kernel_size=TBD, stride=TBD, padding=TBD, dilation=TBD) | input
    kernel_size stride padding dilation output | input kernel_size stride padding dilation |
    output | input | output
PaddingConverter1D(kernel_size=TBD, input=TBD) | input kernel_size output | input kernel_size |
    output | input | output
PaddingConverter2D(kernel_size=TBD, input=TBD) | input kernel_size output | input kernel_size |
    output | input | output
StrideConverter(kernel_size=TBD, input=TBD) | input kernel_size output | input kernel_size |
    output | input | output
TupleConverter(input=TBD) | input output | input | output | input | output
PrimitiveMaxPool2D(input=TBD, kernel_size=TBD, stride=TBD, padding=TBD, dilation=TBD) | input
    kernel_size stride padding dilation output | input kernel_size stride padding dilation |
    output | input | output
PrimitiveAvgPool2D(input=TBD, kernel_size=TBD, stride=TBD, padding=TBD, dilation=TBD) | input
    kernel_size stride padding dilation output | input kernel_size stride padding dilation |
    output | input | output
NormModifier(input=TBD) | input output | input | output | input | output
DistanceMatrix(left=TBD, right=TBD) | left right norm output | left right norm | output | left
    right | output
PolynomialFeatures(degree=TBD, input=TBD) | input degree output | input degree | output | input |
    output
TsnePJoint(squared_distances=TBD, target_perplexity=TBD, threshold=EPSILON) | squared_distances
    target_perplexity threshold output | squared_distances target_perplexity threshold | output |
    squared_distances | output
EyeComplement(N=TBD, M=None, dtype=None) | N M dtype output | N M dtype | output | N | output
Eye(N=TBD, M=None, dtype=None) | N M dtype output | N M dtype | output | N | output
Cholesky(input=TBD) | input output | input | output | input | output
GPRAlpha(label_mu_diff=TBD, L=TBD, K_term=TBD) | label_mu_diff L K_term output | label_mu_diff L
    K_term | output | label_mu_diff | output
GPRVOuter(K=TBD, K_term=TBD, L=TBD) | K K_term L output | K K_term L | output | K | output
TransposedDiagonal(input=TBD) | input output | input | output | input | output
Arange(start=0, stop=TBD, step=1, dtype=None) | start stop step dtype output | stop start step
    dtype | output | stop | output
PrimitiveRandn(shape=TBD, key=TBD, dtype=None) | shape key dtype output | shape key dtype | output
    | shape | output
PrimitiveRandInt(shape=TBD, key=TBD, low=TBD, high=TBD, dtype=None) | shape key low high dtype
    output | shape key low high dtype | output | shape | output
BroadcastTo(shape=TBD, input=TBD) | input shape output | input shape | output | input | output
Eigvalsh(K_term=TBD, L=TBD, threshold=EPSILON) | K_term L threshold output | K_term L threshold |
    output | K_term | output
Squeeze(input=TBD) | input output | input | output | input | output
AUCCore(input=TBD, label=TBD) | input label output | input label | output | input | output
Embedding(num_embeddings=None, dim=None, input=TBD, weight=TBD) | input weight output | input
    weight | output | input | output
ScaledDotProduct(is_causal=True, scale=None, dropout_p=0.0, use_attn_mask=False, query=TBD,
    key=TBD, value=TBD, attn_mask=TBD) | query key value dropout_p is_causal scale output
    attn_mask | query key value dropout_p attn_mask is_causal scale | output | query | output
PositionalEncoding(hidden_dim, max_len=5000, input=TBD) | input hidden_dim max_len output | input
    hidden_dim max_len | output | input | output
SwapAxes(axis1, axis2, input=TBD) | input axis1 axis2 output | input axis1 axis2 | output | input
    | output
Where(cond=TBD, input1=TBD, input2=TBD) | cond input1 input2 output | cond input1 input2 | output
    | input1 | output
IsNan(input=TBD) | input output | input | output | input | output
Unique(input=TBD) | input output | input | output | input | output
Trapezoid(x=TBD, y=TBD) | y x output | y x | output | y | output
NanToNum(nan=0.0, posinf=None, neginf=None, input=TBD) | input nan posinf neginf output | input
    nan posinf neginf | output | input | output
Pad(pad_width=TBD, input=TBD) | input pad_width output | input pad_width | output | input | output
ZerosLike(input=TBD) | input output | input | output | input | output
Ones(shape=TBD, dtype=None) | shape dtype output | shape dtype | output | shape | output
Buffer(input=TBD) | input output | input | output | input | output
ToTuple(n, **kwargs) | - | input1 input2 | output | - | output
Power(robust=False, base=TBD, exponent=TBD, threshold=MIN_POSITIVE_NORMAL) | base exponent output
    threshold | base exponent | output | base | output
Add(left=TBD, right=TBD) | left right output | left right | output | left right | output
Subtract(left=TBD, right=TBD) | left right output | left right | output | left | output
Multiply(left=TBD, right=TBD) | left right output | left right | output | left right | output
Minimum(left=TBD, right=TBD) | left right output | left right | output | left right | output
Maximum(left=TBD, right=TBD) | left right output | left right | output | left right | output
Divide(numerator=TBD, denominator=TBD) | numerator denominator output | numerator denominator |
    output | numerator | output
FloorDivide(numerator=TBD, denominator=TBD) | numerator denominator output | numerator denominator
    | output | numerator | output
MatrixMultiply(left=TBD, right=TBD) | left right output | left right | output | left | output
Shape(input=TBD) | input output | input | output | input | output
Reshape(shape=TBD, input=TBD) | input shape output | input shape | output | input | output
Length(input=TBD) | input output | input | output | input | output
Cast(dtype=TBD) | input dtype output | input dtype | output | input | output
Dtype(input=TBD) | input output | input | output | input | output
Size(dim=None, input=TBD) | input dim output | input dim | output | input | output
Item(input=TBD) | input output | input | output | input | output
ToTensor(input=TBD, dtype=None) | input dtype output | input dtype | output | input | output
ToList(n, **kwargs) | - | input1 input2 | output | - | output
TensorToList(input=TBD) | input output | input | output | input | output
Mean(axis=None, keepdim=False, input=TBD) | input axis keepdim output | input axis keepdim |
    output | input | output
Sum(axis=None, keepdim=False, input=TBD) | input axis keepdim output | input axis keepdim | output
    | input | output
Max(axis=None, keepdim=False, input=TBD) | input axis keepdim output | input axis keepdim | output
    | input | output
ArgMax(axis=None, keepdim=False, input=TBD) | input axis keepdim output | input axis keepdim |
    output | input | output
Min(axis=None, keepdim=False, input=TBD) | input axis keepdim output | input axis keepdim | output
    | input | output
ArgMin(axis=None, keepdim=False, input=TBD) | input axis keepdim output | input axis keepdim |
    output | input | output
Prod(axis=None, keepdim=False, input=TBD) | input axis keepdim output | input axis keepdim |
    output | input | output
Variance(axis=None, keepdim=False, correction=0.0, input=TBD) | input axis keepdim correction
    output | input axis keepdim correction | output | input | output
Absolute(input=TBD) | input output | input | output | input | output
Negate(input=TBD) | input output | input | output | input | output
Exponential(input=TBD) | input output | input | output | input | output
Sqrt(robust=False, input=TBD, *, threshold=MIN_POSITIVE_NORMAL) | input output threshold | input |
    output | input | output
Greater(left=TBD, right=TBD) | left right output | left right | output | left | output
Less(left=TBD, right=TBD) | left right output | left right | output | left | output
Equal(left=TBD, right=TBD) | left right output | left right | output | left right | output
NotEqual(left=TBD, right=TBD) | left right output | left right | output | left right | output
LessEqual(left=TBD, right=TBD) | left right output | left right | output | left | output
GreaterEqual(left=TBD, right=TBD) | left right output | left right | output | left | output
LogicalNot(input=TBD) | input output | input | output | input | output
LogicalAnd(left=TBD, right=TBD) | left right output | left right | output | left right | output
LogicalOr(left=TBD, right=TBD) | left right output | left right | output | left right | output
LogicalXOr(left=TBD, right=TBD) | left right output | left right | output | left right | output
ShiftLeft(input=TBD, shift=TBD) | input shift output | input shift | output | input | output
ShiftRight(input=TBD, shift=TBD) | input shift output | input shift | output | input | output
Transpose(axes=None, input=TBD) | input axes output | input axes | output | input | output
Slice(start=TBD, stop=TBD, step=TBD) | start stop step output | start stop step | output | - |
    output
Indexer(index=TBD, input=TBD) | input index output | input index | output | input | output
Sine(input=TBD) | input output | input | output | input | output
Cosine(input=TBD) | input output | input | output | input | output
AtLeast1D(input=TBD) | input output | input | output | input | output
Floor(input=TBD) | input output | input | output | input | output
Clamp(input=TBD, min_val=TBD, max_val=TBD) | - | input min_val max_val | output | input | output
Pool1D(kernel_size, stride=None, padding=(0, 0), dilation=1, input=TBD) | input kernel_size stride
    padding dilation output | - | - | - | -
MaxPool1D(kernel_size, stride=None, padding=(0, 0), dilation=1, input=TBD) | input kernel_size
    stride padding dilation output | stride kernel_size padding input dilation | output | input |
    output
Pool2D(kernel_size, stride=None, padding=(0, 0), dilation=1, input=TBD) | input kernel_size stride
    padding dilation output | - | - | - | -
MaxPool2D(kernel_size, stride=None, padding=(0, 0), dilation=1, input=TBD) | input kernel_size
    stride padding dilation output | kernel_size stride padding dilation input | output | input |
    output
AvgPool2D(kernel_size, stride=None, padding=(0, 0), dilation=1, input=TBD) | input kernel_size
    stride padding dilation output | kernel_size stride padding dilation input | output | input |
    output
Convolution1D(kernel_size=None, out_channels=None, stride=1, padding=0, dilation=1, use_bias=True,
    input=TBD, weight=TBD) | input weight stride padding dilation output | weight padding input
    bias stride dilation | output | input | output
Convolution2D(kernel_size=None, out_channels=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1),
    groups=1, use_bias=True, input=TBD, weight=TBD) | input weight stride padding dilation groups
    output | weight padding stride dilation input bias groups | output | input | output
Linear(dimension=None, use_bias=True, input=TBD, weight=TBD, bias=TBD) | input weight output bias
    | weight input bias | output | input | output
ElementWiseAffine(input=TBD, weight=TBD, bias=TBD) | input weight bias output | input weight bias
    | output | input | output
Layer(activation, dimension=None, input=TBD, weight=TBD, bias=TBD) | input weight bias output |
    weight input bias | output | input | output
LayerNorm(use_scale=True, use_bias=True, eps=1e-05, input=TBD, weight=TBD, bias=TBD) | input
    output eps weight bias | input eps weight bias | output | input | output
GroupNorm(num_groups=32, use_scale=True, use_bias=True, eps=1e-05, input=TBD, *, weight=TBD,
    bias=TBD) | input output eps weight bias | input weight bias eps | output | input | output
BatchNorm2D(num_features=None, use_scale=True, use_bias=True, eps=1e-05, momentum=0.1,
    inference=True, *, input=TBD, weight=TBD, bias=TBD) | - | input running_mean running_var
    weight bias | output | input | output
L1(input=TBD) | input output | input | output | input | output
L2(input=TBD) | input output | input | output | input | output
QuadraticFormRegularizer(input=TBD, kernel=TBD) | input kernel output | input kernel | output |
    input | output
RBFKernel(input1=TBD, input2=TBD, l_scale=TBD, sigma=TBD) | input1 input2 l_scale sigma output |
    input1 input2 sigma l_scale | output | input1 input2 | output
PolynomialKernel(robust=True, input1=TBD, input2=TBD, poly_coef=TBD, degree=TBD) | input1 input2
    poly_coef degree output | input2 input1 poly_coef degree | output | input1 input2 | output
KernelizedSVM(kernel, weight=TBD, bias=TBD, **kwargs) | input1 input2 weight bias output | input1
    input2 sigma l_scale weight bias | kernel output | input1 input2 | output
LinearSVM(input=TBD, weight=TBD, bias=TBD) | input weight bias output decision_output | weight
    input bias | output decision_output | input | output
LogisticRegression(input=TBD, weight=TBD, bias=TBD) | input weight bias output probs_output |
    weight input bias | output probs_output | input | output
MLP(activations, dimensions, input_name_templates=None, input=TBD, **weights_biases) | input
    output | weight0 input bias0 weight1 bias1 | output | input | output
Cell(formula_key=None) | - | - | - | - | -
RNNCell(input=TBD, w_ih=TBD, w_hh=TBD, w_ho=TBD, bias_h=TBD, bias_o=TBD) | input prev_hidden w_ih
    w_hh w_ho bias_h bias_o hidden hidden_compl output | input prev_hidden w_hh w_ih bias_h w_ho
    bias_o | output hidden hidden_compl | input | output
LSTMCell(input=TBD, w_i=TBD, w_f=TBD, w_c=TBD, w_o=TBD, w_out=TBD, bias_f=TBD, bias_i=TBD,
    bias_c=TBD, bias_o=TBD, bias_out=TBD) | input prev_hidden prev_cell w_i w_f w_c w_o w_out
    bias_f bias_i bias_c bias_o bias_out hidden cell hidden_compl output | input prev_cell
    prev_hidden w_f bias_f w_i bias_i w_c bias_c w_o bias_o w_out bias_out | hidden cell
    hidden_compl output | input | output
LSTMCellBody(input=TBD, prev_hidden=TBD, prev_cell=TBD, w_i=TBD, w_f=TBD, w_c=TBD, w_o=TBD,
    bias_f=TBD, bias_i=TBD, bias_c=TBD, bias_o=TBD) | input prev_hidden prev_cell w_i w_f w_c w_o
    bias_f bias_i bias_c bias_o output | input prev_hidden w_f bias_f prev_cell w_i bias_i w_c
    bias_c w_o bias_o | output | prev_cell | output
RNN(cell_type) | - | - | - | - | -
OneToMany(cell_type, max_sequence_length, teacher_forcing=False, input=TBD, **kwargs) | input |
    input initial_hidden w_hh w_ih bias_h w_ho bias_o target1 | output0 output1 | input | output1
OneToManyInference(cell_type, max_sequence_length, input=TBD, **kwargs) | input | input
    initial_hidden w_hh w_ih bias_h w_ho bias_o | output0 output1 | input | output1
ManyToOne(cell_type, max_sequence_length, hidden_concat=TBD, **kwargs) | hidden_concat | input0
    initial_hidden w_hh w_ih bias_h w_ho bias_o input1 | output1 output0 hidden_concat | input0 |
    hidden_concat
EncoderDecoder(cell_type, max_input_sequence_length, max_target_sequence_length,
    teacher_forcing=False, indices=TBD) | indices | input0 initial_hidden w_hh w_ih bias_h w_ho
    bias_o input1 indices decoder_input decoder_w_hh decoder_w_ih decoder_bias_h decoder_w_ho
    decoder_bias_o target1 | output0 output1 | decoder_input input0 | output1
EncoderDecoderInference(cell_type, max_input_sequence_length, max_target_sequence_length) | - |
    input0 initial_hidden w_hh w_ih bias_h w_ho bias_o input1 decoder_input decoder_w_hh
    decoder_w_ih decoder_bias_h decoder_w_ho decoder_bias_o | output0 output1 | decoder_input
    input0 | output1
EncoderDistanceMatrix(get_final_distance=True, robust=True, input1=TBD, input2=TBD) | input1
    input2 norm output | norm input1 input2 | output | input1 input2 | output
PolynomialRegression(degree, dimension=None, input=TBD, weight=TBD, bias=TBD) | input weight bias
    output | input weight bias | output | input | output
MDSCore(exact_distances=True, robust=True, distances=TBD, pred_distances=TBD, norm=TBD) |
    distances pred_distances norm output | norm pred_distances distances | output | distances norm
    pred_distances | output
TSNECore(exact_distances=True, calculate_p_joint=False, perplexity=20.0, distances=TBD,
    pred_distances=TBD, p_joint=TBD) | distances pred_distances p_joint output | distances
    pred_distances p_joint | output | distances | output
DistanceEncoder(base_model, input_type='distances', input=TBD, coords=TBD, norm=TBD,
    predicted_coords=TBD) | input coords norm predicted_coords output | norm coords input | output
    predicted_coords | coords input norm | output predicted_coords
MDS(prediction_dim, input_type='distances', input=TBD, coords=TBD, norm=TBD, predicted_coords=TBD)
    | input coords norm predicted_coords output | norm coords input | output predicted_coords |
    coords input norm | output predicted_coords
TSNE(prediction_dim, input_type='distances', preplexity=20.0, calculate_p_joint=False, input=TBD,
    norm=TBD, predicted_coords=TBD) | input norm predicted_coords output | norm coords input |
    output predicted_coords | coords input | output predicted_coords
GaussProcessRegressionCore(s=TBD, k=TBD, k_star=TBD, mu=TBD, label=TBD, loss=TBD, prediction=TBD,
    confidence=TBD) | label s k k_star mu loss prediction confidence | - | - | - | -
GPRLoss(robust=False, labels=TBD, mu=TBD, L=TBD, K_term=TBD, alpha=TBD) | labels mu L K_term alpha
    output | - | - | - | -
Metric(threshold=None, is_binary=False, is_pred_one_hot=True, is_label_one_hot=True, pred=TBD,
    label=TBD) | pred label output pred_formatted label_formatted | label pred | pred_formatted
    label_formatted output | pred | label_formatted output pred_formatted
Accuracy(threshold=None, is_binary=False, is_pred_one_hot=True, is_label_one_hot=True, pred=TBD,
    label=TBD) | pred label output | label pred | output | pred | output
Precision(average='micro', n_classes=None, threshold=None, is_binary=False, is_pred_one_hot=True,
    is_label_one_hot=True, pred=TBD, label=TBD) | pred label output | label pred | output | pred |
    output
Recall(average='micro', n_classes=None, threshold=None, is_binary=False, is_pred_one_hot=True,
    is_label_one_hot=True, pred=TBD, label=TBD) | pred label output | label pred | output | pred |
    output
F1(average='micro', n_classes=None, threshold=None, is_binary=False, is_pred_one_hot=True,
    is_label_one_hot=True, pred=TBD, label=TBD) | pred label output | label pred | output | pred |
    output
AUC(n_classes, is_label_one_hot=True, pred=TBD, label=TBD) | pred label output | label pred |
    output | pred | output
SiLU(input=TBD) | input output | input | output | input | output
Randn(shape=TBD, key=TBD, dtype=None) | shape dtype output | shape dtype | new_key output | shape
    | output
RandInt(shape=TBD, key=TBD, low=TBD, high=TBD, dtype=None) | shape low high dtype output | shape
    low high | output | shape | output
Split(split_size, axis, input=TBD) | input output | input split_size axis | output | input |
    output
"""

ROWS = {
    row.partition("(")[0]: [part.strip() for part in re.sub(r"\s+", " ", row).split(" | ")]
    for row in re.split(r"\n(?! )", TABLE.strip())
}

# Arguments that build a row.
ARGUMENTS = {
    "Activation": "'relu'",
    "AUC": "2",
    "AvgPool2D": "2",
    "DistanceEncoder": "m.MDSCore()",
    "EncoderDecoder": "m.RNNCell(), 2, 2",
    "EncoderDecoderInference": "m.RNNCell(), 2, 2",
    "KernelizedSVM": "m.RBFKernel()",
    "Layer": "m.Relu()",
    "ManyToOne": "m.RNNCell(), 2",
    "MaxPool1D": "2",
    "MaxPool2D": "2",
    "MDS": "2",
    "MLP": "[m.Relu(), m.Relu()], [3, 2]",
    "OneToMany": "m.RNNCell(), 2",
    "OneToManyInference": "m.RNNCell(), 2",
    "PolynomialRegression": "2",
    "PositionalEncoding": "4",
    "PrimitiveUnion": "2",
    "Split": "2, 0",
    "SwapAxes": "0, 1",
    "ToList": "2",
    "ToTuple": "2",
    "TSNE": "2",
}
